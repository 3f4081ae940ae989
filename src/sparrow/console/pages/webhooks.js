// Webhooks of a queue: state, errors, pause, secret, create, change, delete.
import { html, useState } from "../lib.js";
import { describe, get, only, part, post, request } from "../api.js";
import { count, plural, shell, time } from "../format.js";
import { useData } from "../state.js";
import { Action, Badge, Commands, Field, Loaded } from "../parts/basics.js";
import { Destroy, Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";

/** @param {any} props */
export function Webhooks({ queue, path, mayEdit }) {
  const loaded = useData((signal) => get(`${path}/subscribers`, {}, signal), [queue.name], { every: 2000 });
  const [open, setOpen] = useState("");
  const [creating, setCreating] = useState(false);
  const rows = (loaded.data?.subscribers ?? []).filter((each) => each.webhook);
  const chosen = rows.find((each) => each.name === open);
  return html`<${Loaded} loaded=${loaded}>${() => html`<${Table} label="Webhooks" rows=${rows} keyOf=${(each) => each.name} empty="No webhook: consumers take from this queue themselves." columns=${[
      { name: "Webhook", cell: (each) => html`<button type="button" class="plain row" onClick=${() => setOpen(each.name)}>${each.name}</button>` },
      { name: "State", cell: ({ webhook }) => html`<${Badge} kind=${kindOf(webhook)}>${webhook.is_paused ? "paused" : webhook.statistics.state}<//>` },
      { name: "Address", wide: true, cell: ({ webhook }) => webhook.settings.url },
      { name: "Delivered", number: true, cell: ({ webhook }) => count(webhook.statistics.delivered) }, { name: "Failed", number: true, cell: ({ webhook }) => count(webhook.statistics.failed) },
      { name: "Last error", wide: true, cell: ({ webhook }) => webhook.statistics.last_error || "–" },
    ]} />`}<//>
    ${mayEdit && html`<div class="actions"><button type="button" onClick=${() => setCreating(true)}>Add webhook</button></div>`}
    <${Commands} commands=${[`sparrow queue webhook list ${shell(queue.name)}`, `curl ${location.origin}${path}/subscribers`]} />
    ${creating && html`<${Create} path=${path} reload=${loaded.reload} onClose=${() => setCreating(false)} />`}
    ${chosen && html`<${Webhook} webhook=${chosen.webhook} queue=${queue} path=${`${path}/subscribers/${part(chosen.name)}`} mayEdit=${mayEdit} reload=${loaded.reload} onClose=${() => setOpen("")} />`}`;
}

/** @param {any} messages of a subscriber */
const waiting = (messages) => messages.ready + messages.leased + messages.delayed + messages.blocked;

/** @param {any} webhook */
const kindOf = (webhook) => (webhook.is_paused ? "warn" : { failing: "bad", refused: "bad", delivering: "good" }[webhook.statistics.state] ?? "");

/** @param {any} props */
function Webhook({ webhook, queue, path, mayEdit, reload, onClose }) {
  const [asking, setAsking] = useState(false);
  const [secret, setSecret] = useState("");
  const s = webhook.statistics;
  const act = (verb) => async () => { await request("POST", `${path}/${verb}`); await reload(); };
  return html`<${Dialog} isDrawer title=${webhook.name} onClose=${onClose}>
    <dl class="facts"><dt>State</dt><dd>${webhook.is_paused ? `paused${webhook.paused_because ? `: ${webhook.paused_because}` : ""}` : s.state}</dd>
      <dt>Address</dt><dd>${webhook.settings.url}</dd><dt>Owner</dt><dd>${webhook.owner}</dd>
      <dt>Attempts</dt><dd>${count(s.attempts)}, ${count(s.failed)} failed, ${count(s.consecutive_failures)} in a row</dd>
      <dt>Last success</dt><dd>${time(s.last_success_ms)}</dd><dt>Last error</dt><dd>${s.last_error ? `${s.last_error} (${time(s.last_error_ms)})` : "–"}</dd></dl>
    <${Table} label="Settings" rows=${Object.entries(webhook.settings)} keyOf=${(each) => each[0]} columns=${[{ name: "Setting", cell: ([name]) => name }, { name: "Value", wide: true, cell: ([, value]) => html`<code>${JSON.stringify(value)}</code>` }]} />
    ${secret && html`<p class="note">The new secret, which is not shown again: <code>${secret}</code></p>`}
    ${mayEdit && html`<div class="actions"><${Action} onClick=${act(webhook.is_paused ? "resume" : "pause")}>${webhook.is_paused ? "Resume" : "Pause"}<//>
      <${Action} onClick=${async () => setSecret((await post(`${path}/rotate-secret`)).secret)}>Rotate secret<//>
      <button type="button" class="danger" onClick=${() => setAsking(true)}>Delete webhook</button></div>`}
    <${Commands} commands=${[`sparrow queue webhook pause ${shell(queue.name)} ${shell(webhook.name)}`, `curl -X POST ${location.origin}${path}/pause`]} />
    ${asking && html`<${Destroy} title="Delete webhook" name=${webhook.name} verb="Delete webhook" look=${() => describe(path)} run=${(found) => request("DELETE", path, { headers: only(found) })}
      facts=${({ webhook: found, messages }) => ({ id: found?.created_ms, paused: found?.is_paused ? "yes" : "no", owner: found?.owner, ...found?.settings, ...(messages && { waiting: waiting(messages) }) })}
      loss=${({ webhook: found, messages }) => html`<p>Nothing is delivered to ${found?.settings.url} any more; ${count(found?.statistics.delivered)} were accepted so far.</p>
        ${messages && html`<p>It is a subscriber of the queue: the delivery of <strong>${plural(waiting(messages), "message")}</strong> to it will be lost.</p>`}`}
      onDone=${async () => { await reload(); onClose(); }} onClose=${() => setAsking(false)} />`}
  <//>`;
}

/** @param {any} props */
function Create({ path, reload, onClose }) {
  const [form, setForm] = useState({ name: "", url: "" });
  const [secret, setSecret] = useState("");
  const create = async () => {
    const { data } = await request("PUT", `${path}/subscribers/${part(form.name)}`, { body: { url: form.url } });
    setSecret(data.webhook.secret);
    await reload();
  };
  return html`<${Dialog} title="Add webhook" onClose=${onClose}>
    <${Field} label="Name"><input value=${form.name} onInput=${(e) => setForm({ ...form, name: e.target.value })} /><//>
    <${Field} label="Address" hint="The broker POSTs each message there."><input type="url" value=${form.url} onInput=${(e) => setForm({ ...form, url: e.target.value })} /><//>
    ${secret && html`<p class="note" role="status">Created. Its secret, which is not shown again: <code>${secret}</code></p>`}
    <div class="actions"><${Action} kind="main" onClick=${create} disabled=${!form.name || !form.url || Boolean(secret)}>Add<//><button type="button" onClick=${onClose}>Close</button></div>
  <//>`;
}
