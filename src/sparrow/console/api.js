// Calls of the broker's public API, as the principal that is logged in.
import { signal } from "./lib.js";

/** An error of the API, as a problem (RFC 9457), in words. */
export class Problem extends Error {
  /** @param {{detail?: string, code?: string, status?: number, title?: string}} problem */
  constructor(problem) {
    super(problem.detail || problem.title || "The request failed.");
    this.code = problem.code || "";
    this.status = problem.status || 0;
  }
}

/** The broker could not be reached. */
export class Unreachable extends Error {
  constructor() {
    super("The broker does not answer.");
  }
}

/** When the connection was lost (ms), 0 while there is one. */
export const lostSince = signal(0);
/** True when the broker wants a login that this browser does not have (any more). */
export const needsLogin = signal(false);
/** Counts up when the broker is back, or something was changed: data is loaded again. */
export const pulse = signal(0);

/**
 * Note that the broker answered, or did not.
 * @param {boolean} isThere
 */
export function noteConnection(isThere) {
  if (isThere && lostSince.value) {
    lostSince.value = 0;
    pulse.value += 1;
  } else if (!isThere && !lostSince.value) {
    lostSince.value = Date.now();
  }
}

/**
 * Call the API.
 * @param {string} method
 * @param {string} path
 * @param {{query?: Record<string, any>, body?: any, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 * @returns {Promise<{data: any, headers: Headers, status: number}>}
 */
export async function request(method, path, options = {}) {
  const headers = { accept: "application/json", ...options.headers };
  let body;
  if (options.body !== undefined) {
    headers["content-type"] = headers["content-type"] || "application/json";
    body = headers["content-type"].startsWith("application/") ? JSON.stringify(options.body) : options.body;
  }
  let response;
  try {
    response = await fetch(address(path, options.query), { method, headers, body, signal: options.signal });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    noteConnection(false);
    throw new Unreachable();
  }
  noteConnection(true);
  const data = await content(response);
  if (response.ok) return { data, headers: response.headers, status: response.status };
  if (response.status === 401) needsLogin.value = true;
  throw new Problem(typeof data === "object" && data ? data : { status: response.status, title: response.statusText });
}

/** @param {Response} response */
async function content(response) {
  const text = await response.text();
  const isJson = (response.headers.get("content-type") || "").includes("json");
  return isJson && text ? JSON.parse(text) : text;
}

/**
 * Return a path with its query.
 * @param {string} path
 * @param {Record<string, any>} [query]
 */
export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 */
export async function get(path, query, signal) {
  return (await request("GET", path, { query, signal })).data;
}

/**
 * A description with the tag of its state, for changes that must not hit another state.
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function describe(path, signal) {
  const { data, headers } = await request("GET", path, { signal });
  return { ...data, tag: headers.get("etag") };
}

/**
 * The header with which a change is refused if the state is not the one that was described.
 * @param {{tag: string}} state
 */
export const only = (state) => ({ "if-match": state.tag });

/**
 * @param {string} path
 * @param {any} [body]
 * @param {Record<string, string>} [headers]
 */
export async function post(path, body = {}, headers) {
  return (await request("POST", path, { body, headers })).data;
}

/**
 * A part of a path.
 * @param {string | number} name
 */
export const part = (name) => encodeURIComponent(name);
