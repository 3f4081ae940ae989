// One message: its value by content type, headers, copy, download, publish again.
import { html, useState } from "../lib.js";
import { request, part } from "../api.js";
import { bytes, shell, time } from "../format.js";
import { Action, Badge, Commands, ErrorNote } from "./basics.js";
import { Dialog } from "./dialog.js";

/**
 * @typedef {{topic: string, partition: number, offset: number, timestamp_ms: number, key?: string | null,
 *   key_base64?: string, value?: string | null, value_base64?: string, headers: [string, any][],
 *   value_bytes?: number, is_cut?: boolean}} Message
 */

/**
 * The bytes of a text or of base64; null stays null.
 * @param {Message} message
 * @param {"key" | "value"} name
 */
export function bytesOf(message, name) {
  const coded = message[/** @type {"key_base64"} */ (`${name}_base64`)];
  if (coded) return Uint8Array.from(atob(coded), (each) => each.charCodeAt(0));
  const text = message[name];
  return text === null || text === undefined ? null : new TextEncoder().encode(text);
}

/**
 * A short text for a table.
 * @param {Message} message
 * @param {"key" | "value"} name
 * @param {number} [most]
 */
export function preview(message, name, most = 120) {
  if (message[/** @type {"key_base64"} */ (`${name}_base64`)]) {
    const content = /** @type {Uint8Array} */ (bytesOf(message, name));
    return html`<code class="hex">${[...content.slice(0, 16)].map(hex).join(" ")}${content.length > 16 ? " …" : ""}</code>`;
  }
  const text = message[name];
  if (text === null || text === undefined) return html`<${Badge} kind="quiet">${name === "value" ? "tombstone" : "none"}<//>`;
  return text === "" ? html`<${Badge} kind="quiet">empty<//>` : text.length > most ? `${text.slice(0, most)}…` : text;
}

const hex = (each) => each.toString(16).padStart(2, "0");

/**
 * Offset, hex and printable characters.
 * @param {Uint8Array} content
 */
export function hexDump(content) {
  const lines = [];
  for (let at = 0; at < content.length; at += 16) {
    const row = [...content.slice(at, at + 16)];
    const text = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${row.map(hex).join(" ").padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/** @param {Message} message */
export function contentType(message) {
  const found = message.headers.find(([name]) => name.toLowerCase() === "content-type");
  return found && typeof found[1] === "string" ? found[1].split(";")[0].trim().toLowerCase() : "";
}

/**
 * Ways to show a value; the first one fits best.
 * @param {Message} message
 * @returns {string[]}
 */
export function waysToShow(message) {
  if (message.value_base64) return ["hex"];
  if (message.value === null || message.value === undefined) return [];
  const kind = contentType(message);
  const looksLikeJson = kind.endsWith("json") || (!kind && /^\s*[{[]/.test(message.value));
  return looksLikeJson && maybeJson(message.value) !== undefined ? ["JSON", "text", "hex"] : ["text", "hex"];
}

/** @param {string} text */
function maybeJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {{message: Message}} props */
export function Value({ message }) {
  const ways = waysToShow(message);
  const [chosen, choose] = useState("");
  if (!ways.length) return html`<p><${Badge} kind="quiet">tombstone<//> The value is null: compaction deletes the key.</p>`;
  const way = ways.includes(chosen) ? chosen : ways[0];
  const content = way === "hex" ? hexDump(/** @type {Uint8Array} */ (bytesOf(message, "value"))) : way === "JSON"
    ? JSON.stringify(maybeJson(/** @type {string} */ (message.value)), null, 2) : message.value;
  return html`<div class="value">
    ${ways.length > 1 && html`<div class="choices" role="group" aria-label="Show the value as">
      ${ways.map((each) => html`<button type="button" class="plain" aria-pressed=${each === way} onClick=${() => choose(each)}>${each}</button>`)}
    </div>`}
    <pre tabindex="0" aria-label="Value">${content}</pre>
  </div>`;
}

/** @param {any} value */
export function headerText(value) {
  if (value === null) return html`<${Badge} kind="quiet">null<//>`;
  return typeof value === "string" ? value : html`<code class="hex">${value.base64}</code>`;
}

/**
 * Load a message as it is stored.
 * @param {Message} message
 * @returns {Promise<Message>}
 */
async function whole(message) {
  const path = `/v1/topics/${part(message.topic)}/search`;
  const query = { from: message.offset, partition: message.partition, limit: 1, max_ms: 10000, order: "oldest" };
  const found = (await request("GET", path, { query })).data.messages[0];
  return found && found.offset === message.offset ? found : message;
}

/**
 * The drawer with everything about a message.
 * @param {{message: Message, onClose: () => void, onEdit?: (message: Message) => void, onAgain?: (message: Message) => Promise<any>,
 *          extra?: any, actions?: any}} props
 */
export function MessageDrawer({ message: given, onClose, onEdit, onAgain, extra, actions }) {
  const [message, setMessage] = useState(given);
  const [done, setDone] = useState("");
  const size = message.value_bytes ?? bytesOf(message, "value")?.length ?? -1;
  const path = `/v1/topics/${part(message.topic)}/messages/${message.partition}/${message.offset}`;
  return html`<${Dialog} isDrawer title=${`${message.topic} / ${message.partition} @ ${message.offset}`} onClose=${onClose}>
    <dl class="facts">
      <dt>Time</dt><dd>${time(message.timestamp_ms)}</dd>
      <dt>Key</dt><dd class="break">${preview(message, "key", 500)}</dd>
      <dt>Size of the value</dt><dd>${bytes(size)}</dd>
      ${extra}
    </dl>
    ${message.headers.length > 0 && html`<table><caption>Headers</caption><tbody>
      ${message.headers.map(([name, value]) => html`<tr><th scope="row">${name}</th><td class="break">${headerText(value)}</td></tr>`)}
    </tbody></table>`}
    <${Value} message=${message} />
    ${message.is_cut && html`<p class="note">Only the first ${bytes(bytesOf(message, "value")?.length)} of ${bytes(size)} are shown.
      <${Action} onClick=${async () => setMessage(await whole(message))}>Show all<//></p>`}
    <div class="actions">
      <${Action} onClick=${async () => { await navigator.clipboard.writeText(textOf(await whole(message))); setDone("Copied."); }}>Copy value<//>
      <a class="button" href=${path} download=${`${message.topic}-${message.partition}-${message.offset}`}>Download</a>
      ${onAgain && html`<${Action} onClick=${async () => setDone(await onAgain(await whole(message)))}>Publish again<//>`}
      ${onEdit && html`<${Action} onClick=${async () => onEdit(await whole(message))}>Edit and publish<//>`}
      ${actions}
    </div>
    <p role="status">${done}</p>
    <${Commands} commands=${[
      `sparrow consume ${shell(message.topic)} --partition ${message.partition} --from ${message.offset} --max 1`,
      `curl ${location.origin}${path}`,
    ]} />
  <//>`;
}

/** @param {Message} message */
function textOf(message) {
  return message.value_base64 ? hexDump(/** @type {Uint8Array} */ (bytesOf(message, "value"))) : message.value ?? "";
}

export { ErrorNote };
