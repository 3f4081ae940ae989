// Dialogs: native ones, so that focus and Escape work as everywhere.
import { html, useEffect, useRef, useState } from "../lib.js";
import { wordsFor } from "../state.js";
import { Problem } from "../api.js";
import { Field } from "./basics.js";

/** @param {any} props `isDrawer`: at the side, for looking at something. */
export function Dialog({ title, onClose, children, isDrawer = false }) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
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
 * Ask before something is destroyed: the name must be typed, and the loss is said in numbers.
 * @param {{title: string, name: string, verb: string, loss: any, run: () => Promise<any>, onClose: () => void,
 *          onDone: (result: any) => void, onStale?: () => void}} props
 */
export function Destroy({ title, name, verb, loss, run, onClose, onDone, onStale }) {
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  // What is asked about is what is there now, not what was there at the last look.
  useEffect(() => { onStale?.(); }, []);
  const submit = async (event) => {
    event.preventDefault();
    if (typed !== name || busy) return;
    setBusy(true);
    setError(null);
    try {
      onDone(await run());
    } catch (failure) {
      setBusy(false);
      setError(/** @type {Error} */ (failure));
      if (failure instanceof Problem && failure.code === "STATE_CHANGED") onStale?.();
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${submit}>
      <div class="loss">${loss}</div>
      <p>This cannot be undone.</p>
      <${Field} label=${html`Type <code>${name}</code> to confirm`}>
        <input value=${typed} onInput=${(e) => setTyped(e.target.value)} autocomplete="off" spellcheck="false" />
      <//>
      ${error && html`<p class="note bad" role="alert">${wordsFor(error)}</p>`}
      <div class="actions">
        <button type="submit" class="danger" disabled=${typed !== name || busy}>${verb}</button>
        <button type="button" onClick=${onClose}>Cancel</button>
      </div>
    </form>
  <//>`;
}
