// The records of a queue by state: a bar, and the numbers in words.
import { html } from "../lib.js";
import { count } from "../format.js";

const STATES = ["ready", "leased", "delayed", "blocked", "moving"];

/** @param {{statistics: any, isLarge?: boolean}} props */
export function StateBar({ statistics, isLarge = false }) {
  const shown = STATES.filter((each) => statistics[each] > 0);
  const words = shown.map((each) => `${count(statistics[each])} ${each}`).join(", ") || "empty";
  return html`${isLarge && html`<svg class="statebar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">${parts(statistics, shown)}</svg>`}
    <span class="states">${words}</span>`;
}

/**
 * @param {any} statistics
 * @param {string[]} shown
 */
function parts(statistics, shown) {
  const all = shown.reduce((sum, each) => sum + statistics[each], 0);
  let x = 0;
  return shown.map((each) => {
    const width = (statistics[each] / all) * 100;
    const part = html`<rect class=${each} x=${x} y="0" width=${Math.max(width, 0.5)} height="4" />`;
    x += width;
    return part;
  });
}

/**
 * What makes a queue another one to people who are asked about it.
 * @param {any} queue
 */
export function queueFacts(queue) {
  const { unfinished, dead } = queue.statistics;
  const topics = queue.topics.join(", ");
  return { id: queue.id, unfinished: count(unfinished), "dead letters": count(dead), topics, paused: queue.is_paused ? "yes" : "no", ...queue.policy };
}
