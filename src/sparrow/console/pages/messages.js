// Messages of a topic: newest first, search on the server, live tail.
import { html, useEffect, useRef, useState } from "../lib.js";
import { address, get, part } from "../api.js";
import { bytes, count, shell, time } from "../format.js";
import { route, setQuery } from "../router.js";
import { Commands, Empty, ErrorNote, Field } from "../parts/basics.js";
import { Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";
import { MessageDrawer, preview } from "../parts/message.js";
import { copyOf, publish, PublishForm } from "../parts/publish.js";

const LIMIT = 50;
const MAX_VALUE_BYTES = 4096;
const MOST_LIVE = 500;
const keyOf = (each) => `${each.partition}:${each.offset}`;

/**
 * @param {any} topic
 * @param {Record<string, string>} query
 */
function searchOf(topic, query) {
  const { order = "newest", at = "", value = "", partition, key, contains, header, isolation } = query;
  const from = { "": "", offset: value, time: value ? `timestamp:${new Date(value).getTime()}` : "" }[at] ?? "";
  return { order, from, partition, key, contains, header, isolation, limit: LIMIT, max_value_bytes: MAX_VALUE_BYTES };
}

/** @param {{topic: any, mayPublish: boolean, mayRead: boolean}} props */
export function Messages({ topic, mayPublish, mayRead }) {
  const query = route.value.query;
  const isLive = query.live === "1";
  const [open, setOpen] = useState(/** @type {any} */ (null));
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  const again = async (message) => publish(topic.name, copyOf(message));
  if (!mayRead) return html`<p class="note">You may see that this topic exists, but not read it: that takes the right Read on the topic.</p>`;
  return html`<${Filters} topic=${topic} query=${query} />
    ${isLive ? html`<${Tail} topic=${topic} query=${query} onOpen=${setOpen} />` : html`<${Search} key=${JSON.stringify(query)} topic=${topic} query=${query} onOpen=${setOpen} />`}
    <${Commands} commands=${commands(topic.name, query)} />
    ${open && html`<${MessageDrawer} key=${keyOf(open)} message=${open} onClose=${() => setOpen(null)}
      onAgain=${mayPublish && again} onEdit=${mayPublish && ((message) => { setOpen(null); setEditing(message); })} />`}
    ${editing && html`<${Dialog} title="Edit and publish" onClose=${() => setEditing(null)}><${PublishForm} topic=${topic.name} partitions=${topic.partition_count} from=${editing} /><//>`}`;
}

/**
 * @param {string} topic
 * @param {any} query
 */
function commands(topic, query) {
  const path = address(`${location.origin}/v1/topics/${part(topic)}/search`, { ...searchOf({}, query), max_value_bytes: "" });
  return [`sparrow consume ${shell(topic)} --from ${query.order === "oldest" ? "beginning" : "end"}${query.partition ? ` --partition ${query.partition}` : ""}`, `curl ${shell(path)}`];
}

/** @param {{topic: any, query: Record<string, string>}} props */
function Filters({ topic, query }) {
  const set = (name) => (event) => setQuery({ [name]: event.target.value });
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    setQuery(Object.fromEntries(["key", "contains", "header", "value"].map((name) => [name, form.get(`by-${name}`) ?? ""])));
  };
  return html`<form class="filters" onSubmit=${submit} role="search" aria-label="Messages">
    <${Field} label="Order"><select value=${query.order ?? "newest"} onChange=${set("order")}><option value="newest">newest first</option><option value="oldest">oldest first</option></select><//>
    <${Field} label="From"><select value=${query.at ?? ""} onChange=${set("at")}><option value="">${query.order === "oldest" ? "the beginning" : "the end"}</option><option value="offset">offset</option><option value="time">time</option></select><//>
    ${query.at && html`<${Field} label=${query.at === "time" ? "Time" : "Offset"}><input name="by-value" type=${query.at === "time" ? "datetime-local" : "text"} step="1" value=${query.value ?? ""} /><//>`}
    <${Field} label="Partition"><select value=${query.partition ?? ""} onChange=${set("partition")}><option value="">all</option>${topic.partitions.slice(0, 1000).map((p) => html`<option value=${p.partition}>${p.partition}</option>`)}</select><//>
    <${Field} label="Key is"><input name="by-key" value=${query.key ?? ""} /><//>
    <${Field} label="Text contains"><input name="by-contains" value=${query.contains ?? ""} data-search /><//>
    <${Field} label="Header" ><input name="by-header" value=${query.header ?? ""} placeholder="name or name=value" /><//>
    <${Field} label="Aborted"><select value=${query.isolation ?? ""} onChange=${set("isolation")}><option value="">shown</option><option value="committed">hidden</option></select><//>
    <div class="actions"><button type="submit" class="main">Search</button>
      <button type="button" aria-pressed=${query.live === "1"} onClick=${() => setQuery({ live: query.live === "1" ? "" : "1" })}>${query.live === "1" ? "Stop live" : "Live"}</button></div>
  </form>`;
}

/**
 * @param {any} onOpen
 * @param {boolean} [isNarrow]
 */
export function columns(onOpen, isNarrow = false) {
  return [
    { name: "Time", cell: (each) => html`<button type="button" class="plain row" onClick=${(e) => { e.stopPropagation(); onOpen(each); }}>${time(each.timestamp_ms)}</button>` },
    { name: "Partition", number: true, cell: (each) => each.partition },
    { name: "Offset", number: true, cell: (each) => each.offset },
    { name: "Key", cell: (each) => preview(each, "key", 40) },
    { name: "Value", wide: true, cell: (each) => html`<span class="preview">${preview(each, "value")}</span>` },
    !isNarrow && { name: "Size", number: true, cell: (each) => bytes(each.value_bytes ?? -1) },
  ];
}

/**
 * A search that goes on until it has a page, and can be cancelled.
 * @param {any} props
 */
function Search({ topic, query, onOpen }) {
  const [pages, setPages] = useState({ found: /** @type {any[]} */ ([]), next: "", left: -1, total: 0, corrupt: 0 });
  const [busy, setBusy] = useState(true);
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const running = useRef(/** @type {AbortController | null} */ (null));
  const wanted = searchOf(topic, query);
  const run = async (start) => {
    const own = (running.current = new AbortController());
    setBusy(true);
    setError(null);
    let state = start;
    const enough = state.found.length + LIMIT;
    try {
      while (state.found.length < enough && state.left !== 0) {
        const from = state.left < 0 ? wanted.from : state.next;
        const page = await get(`/v1/topics/${part(topic.name)}/search`, { ...wanted, from, limit: enough - state.found.length }, own.signal);
        state = { found: [...state.found, ...page.messages], next: page.next, left: page.left, total: page.total, corrupt: state.corrupt + page.corrupt };
        if (own.signal.aborted) return;
        setPages(state);
      }
    } catch (failure) {
      if (!own.signal.aborted) setError(/** @type {Error} */ (failure));
    }
    if (!own.signal.aborted) setBusy(false);
  };
  const cancel = () => { running.current?.abort(); setBusy(false); };
  useEffect(() => { run(pages); return () => running.current?.abort(); }, []);
  const { found, left, total, corrupt } = pages;
  const isFiltered = query.key || query.contains || query.header;
  return html`<p class="progress" role="status" aria-busy=${busy}>
      ${left >= 0 && total > 0 && `${isFiltered ? `${count(found.length)} found, ` : ""}searched ${count(total - left)} of ${count(total)}`}
      ${corrupt > 0 && ` (${corrupt} batches cannot be read)`}
      ${busy && html` <button type="button" onClick=${cancel}>Cancel</button>`}
    </p>
    <${ErrorNote} error=${error} />
    ${(found.length > 0 || !busy) && html`<${Table} label="Messages" rows=${found} keyOf=${keyOf} columns=${columns(onOpen)} onRow=${onOpen}
      empty=${isFiltered ? "No message fits so far." : "No messages here."} />`}
    ${!busy && left > 0 && html`<div class="actions"><button type="button" onClick=${() => run(pages)}>${isFiltered ? "Go on" : "Older or newer: load more"}</button></div>`}
    ${!busy && left === 0 && found.length > 0 && html`<${Empty}>These are all.<//>`}`;
}

/**
 * New messages as they come, newest on top; a pause keeps what comes meanwhile.
 * @param {any} props
 */
function Tail({ topic, query, onOpen }) {
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const [isPaused, setPaused] = useState(false);
  const [error, setError] = useState("");
  const waiting = useRef(/** @type {any[]} */ ([]));
  const paused = useRef(false);
  const [unseen, setUnseen] = useState(0);
  const isWanted = (each) => (!query.key || each.key === query.key) && (!query.contains || JSON.stringify(each).includes(query.contains));
  useEffect(() => {
    const source = new EventSource(address(`/v1/topics/${part(topic.name)}/stream`, { from: "end", partition: query.partition, isolation: query.isolation }));
    source.onmessage = (event) => { const each = JSON.parse(event.data); if (isWanted(each)) waiting.current.push(each); };
    source.addEventListener("error", (event) => { const data = /** @type {any} */ (event).data; if (data) { setError(JSON.parse(data).detail); source.close(); } });
    const timer = setInterval(() => {
      waiting.current = waiting.current.slice(-MOST_LIVE);
      setUnseen(paused.current ? waiting.current.length : 0);
      if (paused.current || !waiting.current.length) return;
      const fresh = waiting.current.reverse();
      waiting.current = [];
      setRows((old) => [...fresh, ...old].slice(0, MOST_LIVE));
    }, 250);
    return () => { source.close(); clearInterval(timer); };
  }, [topic.name, query.partition, query.isolation, query.key, query.contains]);
  const toggle = () => { paused.current = !isPaused; setPaused(!isPaused); };
  return html`<div class="actions"><button type="button" aria-pressed=${isPaused} onClick=${toggle}>${isPaused ? `Resume${unseen ? ` (${unseen} new)` : ""}` : "Pause"}</button>
      <span>${isPaused ? "Paused." : "New messages appear on top."}</span></div>
    ${error && html`<p class="note bad" role="alert">${error}</p>`}
    <${Table} label="Live messages" rows=${rows} keyOf=${keyOf} columns=${columns(onOpen, true)} onRow=${onOpen} empty="Waiting for new messages …" />`;
}

