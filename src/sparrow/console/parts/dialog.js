// Dialogs: native ones, so that focus and Escape work as everywhere.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { wordsFor } from "../state.js";
import { Problem } from "../api.js";
import { Field } from "./basics.js";

/** @param {any} props `isDrawer`: at the side, for looking at something. */
export function Dialog({ title, onClose, children, isDrawer = false }) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useLayoutEffect(() => { // not after the next frame: the focus may be elsewhere by then
    const dialog = ref.current;
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  return html`<dialog ref=${ref} class=${isDrawer ? "drawer" : ""} aria-label=${title}
      onCancel=${(event) => { event.preventDefault(); onClose(); }}>
    <div class="heading"><h2>${title}</h2><button type="button" class="plain" onClick=${onClose}>Close</button></div>
    ${children}
  </dialog>`;
}

/**
 * What differs between two looks, in words. `id` tells things of the same name apart.
 * @param {Record<string, any>} before
 * @param {Record<string, any>} after
 */
function differences(before, after) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const changed = names.filter((name) => String(before[name]) !== String(after[name]));
  const show = (value) => (value === undefined ? "none" : value === "" ? "empty" : String(value));
  return changed.map((name) => (name === "id" ? "it was deleted, and another one of this name was made" : `${name}: ${show(before[name])} → ${show(after[name])}`));
}

/**
 * Ask before something is destroyed: the name must be typed, and the loss is said in numbers. `look` is asked once, when
 * the dialog opens: what it shows stays as it is while the page behind it goes on. If that is not the state any more
 * the broker refuses; the dialog then says what is different, and asks again about what is there now.
 * @param {{title: string, name: string, verb: string, look: () => Promise<any>, facts: (state: any) => Record<string, any>,
 *          loss: (state: any) => any, run: (state: any) => Promise<any>, onClose: () => void, onDone: (result: any) => void}} props
 */
export function Destroy({ title, name, verb, look, facts, loss, run, onClose, onDone }) {
  const [state, setState] = useState(/** @type {any} */ (null));
  const [typed, setTyped] = useState("");
  const [changed, setChanged] = useState(/** @type {string[] | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => { look().then(setState, setError); }, []);
  useEffect(() => field.current?.focus(), [state]);
  const lookAgain = async () => {
    const found = await look();
    setChanged(differences(facts(state), facts(found)));
    setTyped("");
    setState(found);
  };
  const submit = async (event) => {
    event.preventDefault();
    if (typed !== name || busy) return;
    setBusy(true);
    setError(null);
    setChanged(null);
    try {
      onDone(await run(state));
    } catch (failure) {
      const isStale = failure instanceof Problem && failure.code === "STATE_CHANGED";
      await (isStale ? lookAgain() : Promise.reject(failure)).catch(setError);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${changed && html`<div class="note bad" role="alert"><p>Nothing was done: ${name} changed since this dialog was opened.</p>
      <ul>${changed.map((each) => html`<li>${each}</li>`)}</ul><p>Below is what is there now.</p></div>`}
    ${error && html`<p class="note bad" role="alert">${wordsFor(error)}</p>`}
    ${state
      ? html`<form onSubmit=${submit}>
          <div class="loss">${loss(state)}</div>
          <p>This cannot be undone.</p>
          <${Field} label=${html`Type <code>${name}</code> to confirm`}>
            <input ref=${field} value=${typed} onInput=${(e) => setTyped(e.target.value)} autocomplete="off" spellcheck="false" />
          <//>
          <div class="actions">
            <button type="submit" class="danger" disabled=${typed !== name || busy}>${verb}</button>
            <button type="button" onClick=${onClose}>Cancel</button>
          </div>
        </form>`
      : !error && html`<p class="loading">Loading …</p>`}
  <//>`;
}
