// Schedules: jobs that the broker publishes at their times; run, pause, create, delete.
import { html, useState } from "../lib.js";
import { get, part, post, request } from "../api.js";
import { count, duration, shell, time } from "../format.js";
import { may, useData } from "../state.js";
import { Action, Badge, Commands, Field, Heading, Loaded } from "../parts/basics.js";
import { Destroy, Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";

export default function Schedules() {
  const loaded = useData((signal) => get("/v1/schedules", {}, signal), [], { every: 2000 });
  const [open, setOpen] = useState("");
  const [creating, setCreating] = useState(false);
  const queues = useData(() => get("/v1/overview/queues", { limit: 1 }), []);
  const rows = loaded.data?.schedules ?? [];
  const chosen = rows.find((each) => each.name === open);
  return html`<${Heading} title="Schedules" loaded=${loaded} />
    <${Loaded} loaded=${loaded}>${() => html`<${Table} label="Schedules" rows=${rows} keyOf=${(each) => each.name} empty="No schedule: nothing publishes jobs at certain times." columns=${[
      { name: "Schedule", cell: (each) => html`<button type="button" class="plain row" onClick=${() => setOpen(each.name)}>${each.name}</button>` },
      { name: "State", cell: (each) => html`<${Badge} kind=${kindOf(each)}>${each.state}<//>` },
      { name: "Queue", cell: (each) => each.queue }, { name: "When", wide: true, cell: (each) => when(each) },
      { name: "Next", cell: (each) => (each.next_ms.length ? time(each.next_ms[0]) : "–") }, { name: "Last", cell: (each) => time(each.statistics.last_ms) },
      { name: "Jobs", number: true, cell: (each) => count(each.statistics.jobs) }, { name: "Failed", number: true, cell: (each) => count(each.statistics.failed) },
    ]} />`}<//>
    ${(may("AlterConfigs") || queues.data?.total > 0) && html`<div class="actions"><button type="button" onClick=${() => setCreating(true)}>Add schedule</button></div>`}
    <${Commands} commands=${["sparrow schedule list", `curl ${location.origin}/v1/schedules`]} />
    ${creating && html`<${Create} reload=${loaded.reload} onClose=${() => setCreating(false)} />`}
    ${chosen && html`<${Schedule} schedule=${chosen} reload=${loaded.reload} onClose=${() => setOpen("")} />`}`;
}

/** @param {any} schedule */
const kindOf = (schedule) => ({ active: "good", paused: "warn", broken: "bad" }[/** @type {string} */ (schedule.state)] ?? "");

/** @param {any} schedule */
const when = (schedule) => (schedule.every_ms ? `every ${duration(schedule.every_ms)}` : `${schedule.cron} (${schedule.time_zone})`);

/** @param {any} props */
function Schedule({ schedule, reload, onClose }) {
  const [asking, setAsking] = useState(false);
  const path = `/v1/schedules/${part(schedule.name)}`;
  const s = schedule.statistics;
  const rights = useData(() => get("/v1/me", { group: schedule.queue }), [schedule.queue]);
  const mayAct = rights.data?.rights.group?.includes("AlterConfigs");
  const act = (verb) => async () => { await post(`${path}/${verb}`); await reload(); };
  return html`<${Dialog} isDrawer title=${schedule.name} onClose=${onClose}>
    ${schedule.problem && html`<p class="note bad">${schedule.problem}</p>`}
    <dl class="facts"><dt>State</dt><dd>${schedule.paused_because || schedule.state}</dd><dt>Queue</dt><dd>${schedule.queue}</dd><dt>When</dt><dd>${when(schedule)}</dd>
      <dt>Value</dt><dd><code>${schedule.value || schedule.value_base64 || "–"}</code></dd><dt>Key</dt><dd>${schedule.key ?? "–"}</dd>
      <dt>Misfire</dt><dd>${schedule.misfire}</dd><dt>Overlap</dt><dd>${schedule.overlap}</dd><dt>Owner</dt><dd>${schedule.owner}</dd>
      <dt>Jobs</dt><dd>${count(s.jobs)}, ${count(s.skipped)} skipped, ${count(s.failed)} failed</dd>
      <dt>Last error</dt><dd>${s.last_error ? `${s.last_error} (${time(s.last_error_ms)})` : "–"}</dd></dl>
    <h3>Next five times</h3>
    ${schedule.next_ms.length ? html`<ol class="times">${schedule.next_ms.map((each) => html`<li>${time(each)}</li>`)}</ol>` : html`<p>None: it is paused.</p>`}
    ${mayAct && html`<div class="actions"><${Action} onClick=${act("run")}>Run now<//><${Action} onClick=${act(schedule.is_paused ? "resume" : "pause")}>${schedule.is_paused ? "Resume" : "Pause"}<//>
      <button type="button" class="danger" onClick=${() => setAsking(true)}>Delete schedule</button></div>`}
    <${Commands} commands=${[`sparrow schedule show ${shell(schedule.name)}`, `curl -X POST ${location.origin}${path}/run`]} />
    ${asking && html`<${Destroy} title="Delete schedule" name=${schedule.name} verb="Delete schedule" look=${() => get(path)} facts=${(found) => ({ queue: found.queue, when: when(found), state: found.state })}
      loss=${(found) => html`<p>No more jobs are published to ${found.queue}; those that are there stay.</p>`}
      run=${() => request("DELETE", path)} onDone=${async () => { await reload(); onClose(); }} onClose=${() => setAsking(false)} />`}
  <//>`;
}

/** @param {any} props */
function Create({ reload, onClose }) {
  const [form, setForm] = useState({ name: "", queue: "", cron: "", zone: "UTC", value: "" });
  const create = async () => {
    await request("PUT", `/v1/schedules/${part(form.name)}`, { body: { queue: form.queue, cron: form.cron, time_zone: form.zone, value: form.value } });
    await reload();
    onClose();
  };
  const input = (name) => html`<input value=${form[name]} onInput=${(e) => setForm({ ...form, [name]: e.target.value })} />`;
  return html`<${Dialog} title="Add schedule" onClose=${onClose}>
    <${Field} label="Name">${input("name")}<//>
    <${Field} label="Queue">${input("queue")}<//>
    <${Field} label="Cron line" hint="Minute, hour, day of month, month, day of week; or @daily.">${input("cron")}<//>
    <${Field} label="Time zone">${input("zone")}<//>
    <${Field} label="Value of each job">${input("value")}<//>
    <div class="actions"><${Action} kind="main" onClick=${create} disabled=${!form.name || !form.queue || !form.cron}>Add<//><button type="button" onClick=${onClose}>Close</button></div>
  <//>`;
}
