// The form that publishes a message, new or made of another one.
import { html, useState } from "../lib.js";
import { part, request } from "../api.js";
import { shell } from "../format.js";
import { Action, Commands, Field } from "./basics.js";

const MESSAGES = "application/vnd.sparrow.messages+json";
/** Headers that are fields of the form; a copy of a message does not repeat the others of its kind. */
const OWN = ["message-id", "parent-id", "deliver-at", "expires-at", "priority"];

/**
 * @param {string} topic
 * @param {any} message
 * @param {string | number} [partition]
 */
export async function publish(topic, message, partition = "") {
  const query = { partition };
  const headers = { "content-type": MESSAGES };
  const { data } = await request("POST", `/v1/topics/${part(topic)}/messages`, { query, body: { messages: [message] }, headers });
  const [stored] = data.messages;
  if (stored.error) throw new Error(stored.error.detail);
  return `Published to partition ${stored.partition} at offset ${stored.offset}.`;
}

/**
 * What a message is published as again: without the headers that told when and why.
 * @param {any} message
 * @returns {any}
 */
export function copyOf(message) {
  const { key, key_base64, value, value_base64 } = message;
  const kept = { key, key_base64, value, value_base64 };
  const headers = message.headers.filter(([name]) => !OWN.includes(name) && !name.startsWith("dead-letter-"));
  return { ...Object.fromEntries(Object.entries(kept).filter(([, each]) => each !== undefined)), headers };
}

/** @param {{topic: string, partitions: number, from?: any, onDone?: (text: string) => void}} props */
export function PublishForm({ topic, partitions, from, onDone }) {
  const start = from ? copyOf(from) : { headers: [] };
  const [form, setForm] = useState({
    key: start.key ?? start.key_base64 ?? "", value: start.value ?? start.value_base64 ?? "", partition: "",
    delay: "", priority: "", parents: "", id: "",
    isBase64: Boolean(start.value_base64), isKeyBase64: Boolean(start.key_base64), isNull: Boolean(from) && start.value === null,
  });
  const [headers, setHeaders] = useState(/** @type {[string, any][]} */ (start.headers));
  const [done, setDone] = useState("");
  const set = (name) => (event) => {
    const value = event.target.type === "checkbox" ? event.target.checked : event.target.value;
    setForm((old) => ({ ...old, [name]: value }));
  };
  const send = async () => {
    const text = await publish(topic, messageOf(form, headers), form.partition);
    setDone(text);
    onDone?.(text);
  };
  return html`<form class="publish" onSubmit=${(e) => e.preventDefault()}>
    <div class="fields">
      <${Field} label="Key" hint="Messages with one key stay in order. Empty: no key."><input value=${form.key} onInput=${set("key")} /><//>
      <${Field} label="Partition"><select value=${form.partition} onChange=${set("partition")}>
        <option value="">by key</option>${Array.from({ length: Math.min(partitions, 1000) }, (_, i) => html`<option value=${i}>${i}</option>`)}
      </select><//>
    </div>
    <${Field} label="Value" wide><textarea rows="8" value=${form.value} onInput=${set("value")} disabled=${form.isNull} spellcheck="false"></textarea><//>
    <div class="checks">
      <label><input type="checkbox" checked=${form.isBase64} onChange=${set("isBase64")} /> The value is base64 of bytes</label>
      <label><input type="checkbox" checked=${form.isNull} onChange=${set("isNull")} /> Null (a tombstone)</label>
    </div>
    <${HeaderFields} headers=${headers} onChange=${setHeaders} />
    <details open=${Boolean(form.delay || form.priority || form.parents)}>
      <summary>For queues: delay, priority, parents</summary>
      <div class="fields">
        <${Field} label="Delay (ms)"><input inputmode="numeric" value=${form.delay} onInput=${set("delay")} /><//>
        <${Field} label="Priority (0 to 9)"><input inputmode="numeric" value=${form.priority} onInput=${set("priority")} /><//>
        <${Field} label="Message id"><input value=${form.id} onInput=${set("id")} /><//>
        <${Field} label="Parents" hint="Ids of messages that must be finished before; separated by commas."><input value=${form.parents} onInput=${set("parents")} /><//>
      </div>
    </details>
    <div class="actions"><${Action} kind="main" onClick=${send}>Publish<//><span role="status">${done}</span></div>
    <${Commands} commands=${commands(topic, form)} />
  </form>`;
}

/**
 * @param {any} form
 * @param {[string, any][]} headers
 */
export function messageOf(form, headers) {
  const message = /** @type {any} */ ({ headers: headers.filter(([name]) => name !== "") });
  if (form.key !== "") message[form.isKeyBase64 ? "key_base64" : "key"] = form.key;
  if (form.isNull) message.value = null;
  else message[form.isBase64 ? "value_base64" : "value"] = form.value;
  if (form.delay !== "") message.delay_ms = Number(form.delay);
  if (form.priority !== "") message.priority = Number(form.priority);
  if (form.id !== "") message.message_id = form.id;
  const parents = form.parents.split(",").map((each) => each.trim()).filter(Boolean);
  if (parents.length) message.parents = parents;
  return message;
}

/** @param {any} props */
function HeaderFields({ headers, onChange }) {
  const change = (at, which, text) => onChange(
    headers.map((each, i) => (i === at ? (which ? [each[0], text] : [text, each[1]]) : each)),
  );
  return html`<fieldset><legend>Headers</legend>
    ${headers.map(([name, value], i) => html`<div class="pair">
      <input aria-label=${`Name of header ${i + 1}`} value=${name} onInput=${(e) => change(i, 0, e.target.value)} />
      ${typeof value === "string"
        ? html`<input aria-label=${`Value of header ${i + 1}`} value=${value} onInput=${(e) => change(i, 1, e.target.value)} />`
        : html`<input aria-label=${`Value of header ${i + 1}`} value=${value === null ? "(null)" : "(bytes)"} disabled />`}
      <button type="button" class="plain" aria-label=${`Remove header ${i + 1}`} onClick=${() => onChange(headers.filter((_, at) => at !== i))}>Remove</button>
    </div>`)}
    <button type="button" class="plain" onClick=${() => onChange([...headers, ["", ""]])}>Add header</button>
  </fieldset>`;
}

/**
 * @param {string} topic
 * @param {any} form
 */
function commands(topic, form) {
  const key = form.key ? ` --key ${shell(form.key)}` : "";
  const value = form.value.length > 200 ? "…" : form.value;
  return [
    `sparrow publish ${shell(topic)} ${shell(value)}${key}`,
    `curl ${location.origin}/v1/topics/${part(topic)}/messages -d ${shell(value)}${form.key ? ` -H ${shell(`Sparrow-Key: ${form.key}`)}` : ""}`,
  ];
}
