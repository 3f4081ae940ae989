// Deep links: the path of the page says what is shown, and its query how.
import { html, signal } from "./lib.js";

const ROOT = "/ui";

/** @typedef {{parts: string[], query: Record<string, string>}} Route */

/** @returns {Route} */
function current() {
  const path = location.pathname.slice(ROOT.length);
  const parts = path.split("/").filter(Boolean).map((each) => decodeURIComponent(each));
  return { parts, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

export const route = signal(current());
addEventListener("popstate", () => {
  route.value = current();
});

/**
 * @param {(string | number)[]} parts
 * @param {Record<string, any>} [query]
 */
export function href(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "" && value !== null);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `${ROOT}/${parts.map((each) => encodeURIComponent(each)).join("/")}${text ? `?${text}` : ""}`;
}

/**
 * Go to a page.
 * @param {string} to
 * @param {{replace?: boolean}} how
 */
export function go(to, { replace = false } = {}) {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  if (!replace) scrollTo(0, 0);
  route.value = current();
}

/**
 * Change the query of this page; the back button skips it.
 * @param {Record<string, any>} changes
 */
export function setQuery(changes) {
  go(href(route.value.parts, { ...route.value.query, ...changes }), { replace: true });
}

/**
 * A link inside the console.
 * @param {any} props
 */
export function Link({ to, children, ...others }) {
  const click = (event) => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${to} onClick=${click} ...${others}>${children}</a>`;
}
