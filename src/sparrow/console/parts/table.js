// Tables: real ones, which scroll by themselves where the window is narrow.
import { html } from "../lib.js";

/**
 * @typedef {{name: string, cell: (row: any) => any, number?: boolean, wide?: boolean}} Column
 * @param {{label: string, columns: (Column | false | null)[], rows: any[], keyOf: (row: any) => string, empty?: string,
 *          onRow?: (row: any) => void}} props
 */
export function Table({ label, columns, rows, keyOf, empty = "Nothing here.", onRow }) {
  const shown = /** @type {Column[]} */ (columns.filter(Boolean));
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0">
    <table>
      <caption class="sr">${label}</caption>
      <thead><tr>${shown.map((each) => html`<th scope="col" class=${each.number ? "number" : ""}>${each.name}</th>`)}</tr></thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${keyOf(row)} class=${onRow ? "clickable" : ""} onClick=${onRow && (() => onRow(row))}>
            ${shown.map((each) => html`<td class="${each.number ? "number" : ""} ${each.wide ? "wide" : ""}">${each.cell(row)}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
