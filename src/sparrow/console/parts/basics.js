// Small parts that all pages use.
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "../lib.js";
import { duration, plural } from "../format.js";
import { Link } from "../router.js";
import { ageOf, wordsFor } from "../state.js";
import { Unreachable } from "../api.js";

/**
 * The heading of a page; it gets the focus when the page is opened: at once, since an effect after the next frame could
 * take the focus from what the user has reached meanwhile.
 * @param {any} props
 */
export function Heading({ title, children, loaded }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    document.title = `${title} · Sparrow`;
    ref.current?.focus({ preventScroll: true });
  }, [title]);
  return html`<div class="heading">
    <h1 ref=${ref} tabindex="-1">${title}</h1>
    ${loaded && html`<${Age} loaded=${loaded} />`}
    <div class="actions">${children}</div>
  </div>`;
}

/**
 * How old data is that cannot be loaded again.
 * @param {any} props
 */
function Age({ loaded }) {
  const age = ageOf(loaded);
  return age ? html`<span class="stale" role="status">as of ${duration(age)} ago</span>` : null;
}

/**
 * An error in words.
 * @param {{error: Error | null}} props
 */
export function ErrorNote({ error }) {
  if (!error || error instanceof Unreachable) return null;
  return html`<p class="note bad" role="alert">${wordsFor(error)}</p>`;
}

/**
 * What is shown until data is there, or instead of it.
 * @param {any} props
 */
export function Loaded({ loaded, children }) {
  if (loaded.data !== undefined) return html`<${ErrorNote} error=${loaded.error} />${children(loaded.data)}`;
  if (loaded.error) return html`<${ErrorNote} error=${loaded.error} />`;
  return html`<p class="loading">Loading …</p>`;
}

/** @param {{children?: any, kind?: string}} props */
export function Badge({ children, kind = "" }) {
  return html`<span class="badge ${kind}">${children}</span>`;
}

/**
 * A number with its name.
 * @param {any} props
 */
export function Figure({ name, value, note, to }) {
  const shown = to ? html`<${Link} to=${to}>${value}<//>` : value;
  return html`<div class="figure"><dt>${name}</dt><dd>${shown}${note && html`<small>${note}</small>`}</dd></div>`;
}

/**
 * Tabs as links: each has its own address.
 * @param {any} props
 */
export function Tabs({ label, tabs, current }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${tabs.filter(Boolean).map(
      (each) => html`<${Link} to=${each.to} aria-current=${each.id === current ? "page" : undefined}>${each.name}<//>`,
    )}
  </nav>`;
}

/**
 * A field with its label.
 * @param {any} props
 */
export function Field({ label, hint, children, wide }) {
  return html`<label class="field ${wide ? "wide" : ""}"><span>${label}</span>${children}${hint && html`<small>${hint}</small>`}</label>`;
}

/**
 * A text field that reports after typing has paused.
 * @param {any} props
 */
export function SearchField({ label, value, onInput, placeholder = "" }) {
  const timer = useRef(0);
  const changed = (event) => {
    clearTimeout(timer.current);
    const text = event.target.value;
    timer.current = setTimeout(() => onInput(text), 250);
  };
  return html`<label class="field search"><span>${label}</span>
    <input type="search" value=${value} placeholder=${placeholder} onInput=${changed} data-search />
  </label>`;
}

/**
 * A button that shows that it works, and what went wrong.
 * @param {any} props
 */
export function Action({ onClick, children, kind = "", disabled = false, ...others }) {
  const [state, setState] = useState(/** @type {{busy: boolean, error: Error | null}} */ ({ busy: false, error: null }));
  const run = async () => {
    setState({ busy: true, error: null });
    try {
      await onClick();
      setState({ busy: false, error: null });
    } catch (error) {
      setState({ busy: false, error: /** @type {Error} */ (error) });
    }
  };
  return html`<button type="button" class=${kind} disabled=${disabled || state.busy} aria-busy=${state.busy} onClick=${run} ...${others}>
      ${children}</button>
    ${state.error && html`<span class="note bad" role="alert">${wordsFor(state.error)}</span>`}`;
}

/**
 * The same by command line and curl.
 * @param {{commands: string[]}} props
 */
export function Commands({ commands }) {
  return html`<details class="commands">
    <summary>Same by command line</summary>
    ${commands.filter(Boolean).map((each) => html`<pre><code>${each}</code></pre>`)}
  </details>`;
}

/** @param {any} props */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

/**
 * Pages of a list.
 * @param {any} props
 */
export function Pager({ skip, limit, total, onSkip, noun }) {
  if (total <= limit && !skip) return html`<p class="pager" role="status">${plural(total, noun)}</p>`;
  const last = Math.min(skip + limit, total);
  return html`<div class="pager">
    <span role="status">${skip + 1}–${last} of ${plural(total, noun)}</span>
    <button type="button" disabled=${!skip} onClick=${() => onSkip(Math.max(0, skip - limit))}>Previous</button>
    <button type="button" disabled=${last >= total} onClick=${() => onSkip(skip + limit)}>Next</button>
  </div>`;
}

/**
 * Something that announces its text to screen readers, at most every 5 s.
 * @param {{text: string}} props
 */
export function Announce({ text }) {
  const [said, setSaid] = useState("");
  const newest = useRef(text);
  newest.current = text;
  useEffect(() => {
    const timer = setInterval(() => setSaid(newest.current), 5000);
    return () => clearInterval(timer);
  }, []);
  return html`<span class="sr" role="status">${said}</span>`;
}

export { useId };
