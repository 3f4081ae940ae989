// Pipelines: flows between topics and tables, as they report themselves; sinks and their stages.
import { html, useState } from "../lib.js";
import { get, part } from "../api.js";
import { count, duration, rate, time } from "../format.js";
import { now, useData } from "../state.js";
import { Badge, Commands, Empty, Heading, Loaded } from "../parts/basics.js";
import { Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";
import { Graph, inLevels } from "./parents.js";

export default function Pipelines() {
  const loaded = useData(() => get("/v1/pipelines"), [], { every: 2000 });
  const sinks = useData(() => get("/v1/sinks"), [], { every: 3000 });
  return html`<${Heading} title="Pipelines" loaded=${loaded} />
    <${Loaded} loaded=${loaded}>${(found) => html`<${Reports} reports=${found.pipelines} />`}<//>
    <h2>Sinks</h2>
    <${Loaded} loaded=${sinks}>${(found) => html`<${Sinks} sinks=${found.sinks} />`}<//>
    <${Commands} commands=${["sparrow pipeline status", "sparrow sink list", `curl ${location.origin}/v1/pipelines`]} />`;
}

/** @param {{reports: any[]}} props */
function Reports({ reports }) {
  if (!reports.length) return html`<${Empty}>No pipeline reported in the last hour. sparrow pipeline run starts one.<//>`;
  const names = [...new Set(reports.map((each) => each.name))];
  return names.map((name) => html`<${Pipeline} key=${name} name=${name} flows=${reports.filter((each) => each.name === name)} />`);
}

/** @param {any} report */
const kindOf = (report) => (report.state === "failed" ? "bad" : now.value - report.updated_ms > 120000 ? "warn" : report.state === "running" ? "good" : "");

/** @param {{name: string, flows: any[]}} props */
function Pipeline({ name, flows }) {
  const graph = graphOf(flows);
  return html`<section aria-label=${name}><h2>${name}</h2>
    ${graph.edges.length > 0 && html`<${Graph} ...${graph} label=${`Flows of ${name}`} />`}
    <${Table} label=${`Flows of ${name}`} rows=${flows} keyOf=${(each) => each.flow} columns=${[
      { name: "Flow", cell: (each) => each.flow }, { name: "State", cell: (each) => html`<${Badge} kind=${kindOf(each)}>${each.state}<//>` },
      { name: "Reads", cell: (each) => each.sources.join(", ") || "–" }, { name: "Writes", cell: (each) => each.target || "–" },
      { name: "Rows/s", number: true, cell: (each) => rate(each.rows_per_second) }, { name: "Rows", number: true, cell: (each) => count(each.rows) },
      { name: "Refused", number: true, cell: (each) => (each.refused ? html`<${Badge} kind="warn">${count(each.refused)}<//>` : "0") },
      { name: "Lag", number: true, cell: (each) => count(each.lag) }, { name: "Batch", number: true, cell: (each) => (each.batch < 0 ? "–" : `${each.batch}, ${duration(each.batch_ms)}`) },
      { name: "Run since", cell: (each) => (each.started_ms > 0 ? time(each.started_ms) : "–") }, { name: "Reported", cell: (each) => `${duration(Math.max(0, now.value - each.updated_ms))} ago` },
      { name: "Error", wide: true, cell: (each) => each.error || "–" },
    ]} /></section>`;
}

/**
 * From sources over flows to targets, which other flows may read: the lag is on the way into a flow, rates and refused
 * rows are on the way out.
 * @param {any[]} flows
 */
function graphOf(flows) {
  const nodes = /** @type {Record<string, any>} */ ({});
  const edges = /** @type {any[]} */ ([]);
  for (const each of flows) nodes[`flow ${each.flow}`] = { name: each.flow, state: `flow, ${each.state}`, kind: each.state === "failed" ? "bad" : "" };
  const place = (name, state) => { if (!nodes[name]) nodes[name] = { name, state }; return name; };
  for (const each of flows) {
    const id = `flow ${each.flow}`;
    const lag = each.lag === null ? "" : `lag ${count(each.lag)}`;
    const out = [each.state === "running" && rate(each.rows_per_second), each.refused > 0 && `${count(each.refused)} refused`];
    each.sources.forEach((source, i) => edges.push({ from: nodes[`flow ${source}`] ? `flow ${source}` : place(source, "topic"), to: id, text: i ? "" : lag }));
    if (each.target) edges.push({ from: id, to: place(each.target, "target"), text: out.filter(Boolean).join(", ") });
  }
  return { nodes: inLevels(Object.entries(nodes).map(([id, each]) => ({ id, ...each })), edges), edges };
}

/** @param {{sinks: any[]}} props */
function Sinks({ sinks }) {
  const [open, setOpen] = useState("");
  return html`<${Table} label="Sinks" rows=${sinks} keyOf=${(each) => each.sink} empty="No sink: nothing writes batches exactly once." columns=${[
      { name: "Sink", wide: true, cell: (each) => html`<button type="button" class="plain row" onClick=${() => setOpen(each.sink)}>${each.sink}</button>` },
      { name: "Kind", cell: (each) => each.kind }, { name: "Query", cell: (each) => each.query }, { name: "Last batch", number: true, cell: (each) => each.last_batch },
      { name: "Updated", cell: (each) => time(each.updated_ms) }, { name: "Open stages", number: true, cell: (each) => each.open_stages },
    ]} />
    ${open && html`<${Stages} sink=${open} onClose=${() => setOpen("")} />`}`;
}

/** @param {{sink: string, onClose: () => void}} props */
function Stages({ sink, onClose }) {
  const loaded = useData(() => get(`/v1/sinks/${part(sink)}`), [sink], { every: 2000 });
  return html`<${Dialog} title=${sink} onClose=${onClose}><${Loaded} loaded=${loaded}>${(found) => html`
    <dl class="facts"><dt>Run</dt><dd>${found.run}</dd><dt>Earlier runs</dt><dd>${found.past_runs.join(", ") || "none"}</dd><dt>Epoch</dt><dd>${found.epoch}</dd></dl>
    <${Table} label="Open stages" rows=${found.stages} keyOf=${(each) => each.stage} empty="No open stage." columns=${[
      { name: "Batch", number: true, cell: (each) => each.batch }, { name: "Task", number: true, cell: (each) => each.task }, { name: "Attempt", number: true, cell: (each) => each.attempt },
      { name: "Opened", cell: (each) => time(each.opened_ms) }, { name: "Dropped in", cell: (each) => duration(each.left_ms) },
    ]} />`}<//><//>`;
}
