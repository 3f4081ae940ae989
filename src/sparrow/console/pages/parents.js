// Records that wait for parents, as a graph: each parent above its children.
import { html } from "../lib.js";
import { get } from "../api.js";
import { shell } from "../format.js";
import { useData } from "../state.js";
import { Badge, Commands, Empty, Loaded } from "../parts/basics.js";
import { Table } from "../parts/table.js";

const MOST = 200;
const BOX = { width: 190, height: 40, gap: 20, level: 90 };
const MOST_LETTERS = 24;

/**
 * @param {any} message
 * @param {string} name
 */
const header = (message, name) => message.headers.filter(([each]) => each === name).map(([, value]) => String(value));
const idOf = (message) => header(message, "message-id")[0] ?? "";
const parentsOf = (message) => header(message, "parent-id").flatMap((each) => each.split(",")).map((each) => each.trim()).filter(Boolean);

/** @param {any} props */
export function Parents({ queue, path }) {
  const loaded = useData((signal) => get(`${path}/messages`, { state: "ready,leased,delayed,blocked,moving", limit: MOST, subscriber: Object.keys(queue.statistics.subscribers)[0] }, signal), [queue.name], { every: 3000 });
  return html`<${Loaded} loaded=${loaded}>${(found) => html`<${Shown} messages=${found.messages} />`}<//>
    <${Commands} commands=${[`sparrow queue peek ${shell(queue.name)} --state blocked`]} />`;
}

/** @param {{messages: any[]}} props */
function Shown({ messages }) {
  const blocked = messages.filter((each) => parentsOf(each).length);
  if (!blocked.length) return html`<${Empty}>No unfinished record has parents.<//>`;
  const { nodes, edges } = graphOf(messages);
  return html`<${Graph} nodes=${nodes} edges=${edges} />
    <h2>As a table</h2>
    <${Table} label="Records with parents" rows=${blocked} keyOf=${(each) => `${each.partition}:${each.offset}`} columns=${[
      { name: "Record", cell: (each) => idOf(each) || `${each.partition} @${each.offset}` }, { name: "State", cell: (each) => html`<${Badge}>${each.state}<//>` },
      { name: "Waits for", wide: true, cell: (each) => parentsOf(each).map((id) => `${id} (${nodes.find((node) => node.id === id)?.state ?? "finished or not here"})`).join(", ") },
    ]} />`;
}

/**
 * Records with parents, and those that are parents, as nodes.
 * @param {any[]} messages
 */
export function graphOf(messages) {
  const family = messages.filter((each) => parentsOf(each).length || messages.some((other) => parentsOf(other).includes(idOf(each)) && idOf(each)));
  const nodes = family.map((each) => ({ id: idOf(each) || `${each.partition}@${each.offset}`, state: each.state }));
  const known = new Set(nodes.map((each) => each.id));
  const edges = family.flatMap((each, i) => parentsOf(each).map((parent) => ({ from: parent, to: nodes[i].id }))).filter(({ from }) => known.has(from));
  return { nodes: inLevels(nodes, edges), edges };
}

/**
 * Give each node its level, the longest way from one without parents.
 * @param {any[]} nodes @param {{from: string, to: string}[]} edges
 */
export function inLevels(nodes, edges) {
  const byId = Object.fromEntries(nodes.map((each) => [each.id, Object.assign(each, { level: 0 })]));
  for (let round = 0; round < Math.min(nodes.length, 50); round += 1) {
    for (const { from, to } of edges) {
      if (byId[to].level <= byId[from].level) byId[to].level = byId[from].level + 1;
    }
  }
  return nodes;
}

/** @param {string} name */
const shortened = (name) => (name.length > MOST_LETTERS ? `${name.slice(0, MOST_LETTERS - 1)}…` : name);

/**
 * Boxes in levels, one above the other; nodes have a `name` if it is not their id, edges may have a text.
 * @param {{nodes: any[], edges: any[], label?: string}} props
 */
export function Graph({ nodes, edges, label = "Records and their parents" }) {
  const rows = /** @type {Record<number, any[]>} */ ({});
  for (const each of nodes) (rows[each.level] ??= []).push(each);
  const most = Math.max(...Object.values(rows).map((each) => each.length));
  const width = most * (BOX.width + BOX.gap);
  const left = ({ level }) => ((most - rows[level].length) * (BOX.width + BOX.gap)) / 2;
  const places = Object.fromEntries(nodes.map((each) => [each.id, { x: left(each) + rows[each.level].indexOf(each) * (BOX.width + BOX.gap), y: each.level * BOX.level }]));
  const height = Math.max(...nodes.map((each) => each.level)) * BOX.level + BOX.height + 2;
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0"><svg class="graph" viewBox="-2 -2 ${width} ${height + 4}" width=${width} role="img" aria-label=${`${label}, ${nodes.length} nodes`}>
    ${edges.map(({ from, to }) => { const a = places[from]; const b = places[to];
      return html`<path d="M${a.x + BOX.width / 2} ${a.y + BOX.height} L${b.x + BOX.width / 2} ${b.y}" />`; })}
    ${edges.map(({ from, to, text }) => text && html`<text class="edge" text-anchor="middle" x=${(places[from].x + places[to].x + BOX.width) / 2} y=${(places[from].y + BOX.height + places[to].y) / 2 + 4}>${text}</text>`)}
    ${nodes.map((each) => { const { x, y } = places[each.id];
      return html`<rect class=${each.kind ?? ""} x=${x} y=${y} width=${BOX.width} height=${BOX.height} rx="6" /><text x=${x + 8} y=${y + 16}><title>${each.name ?? each.id}</title>${shortened(each.name ?? each.id)}</text><text x=${x + 8} y=${y + 33} class="soft">${each.state}</text>`; })}
  </svg></div>`;
}
