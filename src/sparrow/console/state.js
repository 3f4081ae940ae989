// What all pages share: who is logged in, live numbers, and data that is loaded.
import { signal, useEffect, useRef, useState } from "./lib.js";
import { get, lostSince, needsLogin, noteConnection, Problem, pulse } from "./api.js";

/** @typedef {{principal: string, login: string, rights: {cluster: string[], topic: string[] | null, group: string[] | null}}} Me */

/** @type {import("./vendor/signals.js").Signal<Me | null>} */
export const me = signal(null);
/** The last `statistics` event; null before the first. */
export const live = signal(/** @type {any} */ (null));
/** What needs attention. */
export const alerts = signal(/** @type {any[] | null} */ (null));

/**
 * May the principal do this to the broker?
 * @param {string} operation
 */
export function may(operation) {
  return Boolean(me.value?.rights.cluster.includes(operation));
}

/** Ask who is logged in. */
export async function identify() {
  try {
    me.value = await get("/v1/me");
    needsLogin.value = false;
  } catch (error) {
    me.value = null;
  }
}

/** @type {EventSource | null} */
let source = null;

/** Follow the events of the broker while the page is seen and somebody is logged in. */
export function follow() {
  const isWanted = !document.hidden && me.value !== null && !needsLogin.value;
  if (!isWanted) {
    source?.close();
    source = null;
    return;
  }
  if (source) return;
  source = new EventSource("/v1/events");
  source.onopen = () => noteConnection(true);
  source.onerror = () => {
    const isOver = source?.readyState === EventSource.CLOSED;
    if (isOver) source = null;
    // A refused login ends the stream as well: asking tells the two apart.
    setTimeout(() => get("/v1/me").then(follow, () => isOver && setTimeout(follow, 2000)), 500);
  };
  source.addEventListener("statistics", (event) => {
    live.value = JSON.parse(event.data);
  });
  source.addEventListener("alert", (event) => {
    alerts.value = JSON.parse(event.data);
  });
  source.addEventListener("changed", () => {
    pulse.value += 1;
  });
}

/** A clock for ages and stale data; ticks while the page is seen. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

/**
 * Load data, and load it again every `every` ms while the page is seen, when something changed, and
 * when a lost connection is back. Old data stays while new data cannot be had.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {any[]} inputs
 * @param {{every?: number}} options
 * @returns {{data: T | undefined, error: Error | null, at: number, reload: () => Promise<void>}}
 */
export function useData(load, inputs, { every = 0 } = {}) {
  const [state, setState] = useState(
    /** @type {{data: T | undefined, error: Error | null, at: number, key: string}} */ ({
      data: undefined, error: null, at: 0, key: "",
    }),
  );
  const running = useRef(/** @type {AbortController | null} */ (null));
  const key = JSON.stringify(inputs);
  const reload = async () => {
    running.current?.abort();
    const own = (running.current = new AbortController());
    try {
      const data = await load(own.signal);
      if (!own.signal.aborted) setState({ data, error: null, at: Date.now(), key });
    } catch (error) {
      if (own.signal.aborted) return;
      setState((old) => ({ ...old, data: old.key === key ? old.data : undefined, key, error: /** @type {Error} */ (error) }));
    }
  };
  useEffect(() => {
    reload();
    return () => running.current?.abort();
  }, [key, pulse.value]);
  useEffect(() => {
    if (!every) return;
    const timer = setInterval(() => {
      if (!document.hidden && !needsLogin.value) reload();
    }, every);
    return () => clearInterval(timer);
  }, [key, every]);
  const fits = state.key === key;
  return { data: fits ? state.data : undefined, error: fits ? state.error : null, at: state.at, reload };
}

/**
 * Data is old if it could not be loaded again.
 * @param {{at: number, error: Error | null}} loaded
 */
export function ageOf({ at, error }) {
  return at && (error || lostSince.value) ? Math.max(0, now.value - at) : 0;
}

/**
 * Words for an error that tell what to do.
 * @param {Error} error
 */
export function wordsFor(error) {
  if (error instanceof Problem && error.status === 403 && error.code === "NOT_AUTHORIZED") {
    return `You are not allowed to do this. ${error.message}`;
  }
  return error.message;
}
