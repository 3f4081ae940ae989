// Dead letters of a queue: by reason and error, one by one, redrive, purge, export.
import { html, useEffect, useRef, useState } from "../lib.js";
import { describe, get, only, post, request } from "../api.js";
import { count, plural, shell, time } from "../format.js";
import { route, setQuery } from "../router.js";
import { useData } from "../state.js";
import { Action, Badge, Commands, ErrorNote, Loaded } from "../parts/basics.js";
import { Destroy } from "../parts/dialog.js";
import { MessageDrawer, preview } from "../parts/message.js";
import { queueFacts } from "../parts/statebar.js";
import { Table } from "../parts/table.js";

const LIMIT = 50;
const keyOf = (each) => `${each.partition}:${each.offset}`;
const REASONS = { DELIVERY_LIMIT: "delivered too often", REJECTED: "rejected", PARENT_FAILED: "a parent failed", PARENT_MISSING: "a parent is missing", PARENT_CYCLE: "its parents form a cycle" };

/** @param {any} props */
export function DeadLetters({ queue, path, mayPurge, mayRead, reload }) {
  const { reason = "", error = "", skip: at = "0" } = route.value.query;
  const skip = Number(at) || 0;
  const [chosen, setChosen] = useState(/** @type {Record<string, any>} */ ({}));
  const [open, setOpen] = useState(/** @type {any} */ (null));
  const [asking, setAsking] = useState(false);
  const [note, setNote] = useState("");
  const where = { reason: reason || undefined, error_contains: error || undefined };
  const groups = useData(() => get(`${path}/dead-letter-groups`), [queue.name], { every: 5000 });
  const page = useData((signal) => get(`${path}/dead-letters`, { ...where, limit: LIMIT, skip }, signal), [queue.name, reason, error, skip], { every: 5000 });
  const refresh = async () => { setChosen({}); await Promise.all([groups.reload(), page.reload(), reload()]); };
  const progress = useRedrive(path, refresh);
  const letters = Object.values(chosen).map(({ partition, offset }) => ({ partition, offset }));
  const selection = letters.length ? { letters } : { where: body(where) };
  const words = letters.length ? plural(letters.length, "selected message") : reason || error ? "all of this kind" : "all";
  const toggle = (each) => setChosen((old) => { const { [keyOf(each)]: was, ...rest } = old; return was ? rest : { ...old, [keyOf(each)]: each }; });
  if (!mayRead) return html`<p class="note">To see the dead letters takes the right Read on the queue and its dead-letter topic.</p>`;
  return html`<${Loaded} loaded=${groups}>${(found) => html`<${Groups} found=${found} reason=${reason} error=${error} />`}<//>
    <${Progress} progress=${progress.state} onStop=${progress.stop} />
    <div class="actions">
      <${Action} kind="main" onClick=${() => progress.start(selection)} disabled=${progress.state?.is_running || !queue.statistics.dead}>Redrive ${words}<//>
      ${mayPurge && html`<button type="button" class="danger" disabled=${!queue.statistics.dead} onClick=${() => setAsking(true)}>Purge ${words}</button>`}
      <${Export} path=${path} where=${where} name=${queue.name} chosen=${Object.values(chosen)} />
      ${letters.length > 0 && html`<button type="button" class="plain" onClick=${() => setChosen({})}>Clear the selection</button>`}
      <span role="status">${letters.length > 0 ? `${letters.length} selected, on all pages` : note}</span>
    </div>
    <${Loaded} loaded=${page}>${(found) => html`
      <${Table} label="Dead letters" rows=${found.messages} keyOf=${keyOf} empty=${reason || error ? "No dead letter is of this kind any more." : "No dead letters: nothing was given up."} columns=${[
        { name: "Select", cell: (each) => html`<input type="checkbox" aria-label=${`Select ${each.partition} @ ${each.offset}`} checked=${Boolean(chosen[keyOf(each)])} onChange=${() => toggle(each)} />` },
        { name: "Died", cell: (each) => html`<button type="button" class="plain row" onClick=${() => setOpen(each)}>${time(each.timestamp_ms)}</button>` },
        { name: "Reason", cell: (each) => html`<${Badge} kind="bad">${REASONS[each.reason] ?? each.reason}<//>` },
        { name: "Error", wide: true, cell: (each) => each.error || "–" },
        { name: "Deliveries", number: true, cell: (each) => count(each.delivery_count) },
        { name: "From", cell: (each) => `${each.origin.topic}/${each.origin.partition} @${each.origin.offset}` },
        { name: "Key", cell: (each) => preview(each, "key", 30) },
        { name: "Value", wide: true, cell: (each) => html`<span class="preview">${preview(each, "value")}</span>` },
      ]} />
      <div class="pager"><button type="button" disabled=${!skip} onClick=${() => history.back()}>Previous</button>
        <button type="button" disabled=${found.next_skip === null} onClick=${() => setQuery({ skip: found.next_skip })}>Next</button></div>`}<//>
    <${Commands} commands=${commands(queue.name, path, reason, letters)} />
    ${open && html`<${Letter} letter=${open} path=${path} onClose=${() => setOpen(null)} onRedriven=${async () => { setOpen(null); setNote("Sent back."); await refresh(); }} />`}
    ${asking && html`<${Purge} name=${queue.name} path=${path} letters=${letters} where=${where} onClose=${() => setAsking(false)}
      onDone=${async (result) => { setAsking(false); setNote(`${plural(result.purged, "dead letter")} purged.`); await refresh(); }} />`}`;
}

/**
 * Purge the selected letters, those of a kind, or all: those that are there when the dialog opens, and no later ones.
 * @param {any} props
 */
function Purge({ name, path, letters, where, onClose, onDone }) {
  const isAll = !letters.length && !where.reason && !where.error_contains;
  const nouns = /** @type {[string, string?]} */ (letters.length ? ["selected dead letter"] : isAll ? ["dead letter"] : ["dead letter of this kind", "dead letters of this kind"]);
  const look = async () => {
    const [queue, groups] = await Promise.all([describe(path), letters.length ? [] : allGroups(path)]);
    const meant = groups.filter((each) => (!where.reason || each.reason === where.reason) && each.error.includes(where.error_contains ?? ""));
    return { ...queue, number: letters.length || meant.reduce((sum, each) => sum + each.count, 0), last_ms: Math.max(0, ...meant.map((each) => each.last_ms)) };
  };
  const run = (found) => post(`${path}/dead-letters/purge`, letters.length ? { letters } : { where: body({ ...where, until_ms: found.last_ms + 1 }), all: isAll }, only(found));
  return html`<${Destroy} title="Purge dead letters" name=${name} verb="Purge" look=${look} facts=${queueFacts} run=${run} onDone=${onDone} onClose=${onClose}
    loss=${(found) => html`<p><strong>${plural(found.number, ...nouns)}</strong> will be finished: they cannot be redriven any more. They stay on the dead-letter topic until its retention.</p>`} />`;
}

/**
 * All dead letters by reason and error, 10,000 at a time.
 * @param {string} path
 * @returns {Promise<any[]>}
 */
async function allGroups(path) {
  const groups = [];
  for (let skip = 0; skip >= 0;) {
    const page = await get(`${path}/dead-letter-groups`, { skip });
    groups.push(...page.groups);
    skip = page.next_skip;
  }
  return groups;
}

/**
 * Members that are given.
 * @param {Record<string, any>} where
 */
const body = (where) => Object.fromEntries(Object.entries(where).filter(([, value]) => value !== undefined));

/** @param {any} props */
function Groups({ found, reason, error }) {
  if (!found.groups.length) return null;
  return html`<h2>By reason and error</h2>
    <${Table} label="Dead letters by reason and error" rows=${found.groups} keyOf=${(each) => `${each.reason} ${each.error}`} columns=${[
      { name: "Reason", cell: (each) => html`<${Badge} kind="bad">${REASONS[each.reason] ?? each.reason}<//>` },
      { name: "Error", wide: true, cell: (each) => each.error || "–" },
      { name: "Number", number: true, cell: (each) => count(each.count) },
      { name: "First", cell: (each) => time(each.first_ms) }, { name: "Last", cell: (each) => time(each.last_ms) },
      { name: "From", cell: (each) => each.topics.join(", ") },
      { name: "Show", cell: (each) => { const isShown = each.reason === reason && each.error === error;
        return html`<button type="button" class="plain" aria-pressed=${isShown} onClick=${() => setQuery(isShown ? { reason: "", error: "", skip: "" } : { reason: each.reason, error: each.error, skip: "" })}>${isShown ? "All" : "Only these"}</button>`; } },
    ]} />
    ${found.next_skip >= 0 && html`<p class="hint">Of the first ${count(found.looked_at)} dead letters.</p>`}`;
}

/**
 * Start a redrive and follow it to its end.
 * @param {string} path @param {() => Promise<any>} onEnd
 */
function useRedrive(path, onEnd) {
  const [state, setState] = useState(/** @type {any} */ (null));
  const timer = useRef(0);
  const look = async () => {
    const found = await get(`${path}/redrive`);
    setState(found);
    if (found.is_running) timer.current = setTimeout(look, 300);
    else await onEnd();
  };
  useEffect(() => {
    get(`${path}/redrive`).then((found) => { if (found.is_running) { setState(found); look(); } }, () => {});
    return () => clearTimeout(timer.current);
  }, [path]);
  const start = async (selection) => { setState(await post(`${path}/redrive`, selection)); await look(); };
  const stop = async () => { await request("DELETE", `${path}/redrive`); };
  return { state, start, stop };
}

/** @param {any} props */
function Progress({ progress, onStop }) {
  if (!progress) return null;
  const words = [`${count(progress.moved)} sent back`, progress.skipped && `${count(progress.skipped)} of another kind`, progress.failed && `${count(progress.failed)} failed and stay`].filter(Boolean).join(", ");
  return html`<p class=${`note ${progress.failed || progress.error ? "bad" : ""}`} role="status">${progress.is_running ? "Redrive runs" : "Redrive ended"}: ${words}.
    ${progress.error && ` It ended early: ${progress.error}`} ${progress.is_running && html`<${Action} onClick=${onStop}>Stop<//>`}</p>`;
}

/** @param {any} props */
function Letter({ letter, path, onClose, onRedriven }) {
  const one = `${path}/dead-letters/${letter.partition}/${letter.offset}/redrive`;
  return html`<${MessageDrawer} message=${letter} onClose=${onClose}
    actions=${html`<${Action} kind="main" onClick=${async () => { await post(one); await onRedriven(); }}>Redrive this one<//>`}
    extra=${html`<dt>Reason</dt><dd>${REASONS[letter.reason] ?? letter.reason}</dd><dt>Error</dt><dd>${letter.error || "–"}</dd>
      <dt>Deliveries</dt><dd>${count(letter.delivery_count)}, ${time(letter.origin.first_delivery_ms)} to ${time(letter.origin.last_delivery_ms)}</dd>
      <dt>From</dt><dd>${letter.origin.topic}/${letter.origin.partition} @ ${letter.origin.offset}, published ${time(letter.origin.timestamp_ms)}</dd>`} />`;
}

/**
 * Download as NDJSON: the selected ones, or all that fit, page by page.
 * @param {any} props
 */
function Export({ path, where, name, chosen }) {
  const [done, setDone] = useState("");
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const run = async () => {
    const rows = [...chosen];
    try {
      for (let skip = 0; !chosen.length && skip !== null;) {
        const page = await get(`${path}/dead-letters`, { ...where, limit: 500, skip });
        rows.push(...page.messages);
        skip = page.next_skip;
        setDone(`${count(rows.length)} …`);
      }
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(rows.map((each) => `${JSON.stringify(each)}\n`), { type: "application/x-ndjson" }));
      link.download = `${name}-dead-letters.ndjson`;
      link.click();
      URL.revokeObjectURL(link.href);
      setDone(`${plural(rows.length, "message")} exported.`);
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
    }
  };
  return html`<button type="button" onClick=${run}>Export</button><span role="status">${done}</span><${ErrorNote} error=${error} />`;
}

/**
 * @param {string} name
 * @param {string} path
 * @param {string} reason
 * @param {any[]} letters
 */
function commands(name, path, reason, letters) {
  const only = reason ? ` --where reason=${shell(reason)}` : "";
  const one = letters[0] ? `curl -X POST ${location.origin}${path}/dead-letters/${letters[0].partition}/${letters[0].offset}/redrive` : "";
  return [`sparrow queue dead-letters ${shell(name)}${only}`, `sparrow queue redrive ${shell(name)}${only}`, one, `curl ${location.origin}${path}/dead-letters`];
}

