// Charts as SVG, drawn in the colours of the theme; each is a table as well.
import { html, useState } from "../lib.js";
import { clock, time } from "../format.js";

const WIDTH = 600;

/**
 * @typedef {{name: string, values: (number | null)[]}} Series
 * @param {{title: string, times: number[], series: Series[], show: (value: number | null) => string, height?: number}} props
 */
export function Chart({ title, times, series, show, height = 120 }) {
  const [at, setAt] = useState(-1);
  const known = series.flatMap((each) => each.values.filter((value) => value !== null));
  const most = Math.max(0, ...known.map((value) => value ?? 0));
  const isDrawn = times.length > 1 && known.length > 0;
  const x = (i) => (times.length < 2 ? 0 : (i / (times.length - 1)) * WIDTH);
  const y = (value) => height - 4 - (value / (most || 1)) * (height - 12);
  const move = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    setAt(Math.max(0, Math.min(times.length - 1, Math.round(((event.clientX - box.left) / box.width) * (times.length - 1)))));
  };
  const index = at >= 0 && at < times.length ? at : times.length - 1;
  return html`<figure class="chart">
    <figcaption>
      <strong>${title}</strong>
      ${series.map((each, i) => html`<span class="legend s${i}"><i aria-hidden="true"></i>${each.name} ${show(each.values[index] ?? null)}</span>`)}
      ${at >= 0 && times.length > 0 ? html`<time>${time(times[index])}</time>` : isDrawn && html`<span class="peak">peak ${show(most)}</span>`}
    </figcaption>
    ${!isDrawn
      ? html`<p class="empty">${times.length < 2 ? "Not enough samples yet." : "Nothing to measure in this time."}</p>`
      : html`<svg viewBox="0 0 ${WIDTH} ${height}" preserveAspectRatio="none" role="img" aria-label=${`${title}, ${times.length} samples`}
          onPointerMove=${move} onPointerLeave=${() => setAt(-1)}>
          <line class="axis" x1="0" y1=${height - 4} x2=${WIDTH} y2=${height - 4} />
          ${series.map((each, i) => html`<path class="line s${i}" d=${path(each.values, x, y)} />`)}
          ${at >= 0 && html`<line class="cursor" x1=${x(index)} y1="0" x2=${x(index)} y2=${height} />`}
        </svg><div class="from" aria-hidden="true"><span>${clock(times[0])}</span><span>${clock(times[times.length - 1])}</span></div>`}
    <${ChartTable} title=${title} times=${times} series=${series} show=${show} />
  </figure>`;
}

/**
 * @param {(number | null)[]} values
 * @param {(i: number) => number} x
 * @param {(v: number) => number} y
 */
function path(values, x, y) {
  let isDrawing = false;
  return values
    .map((value, i) => {
      if (value === null) {
        isDrawing = false;
        return "";
      }
      const step = `${isDrawing ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
      isDrawing = true;
      return step;
    })
    .join("");
}

/**
 * Every twelfth sample, newest first.
 * @param {any} props
 */
function ChartTable({ title, times, series, show }) {
  const rows = times.map((_, i) => i).filter((i) => (times.length - 1 - i) % 12 === 0).reverse();
  return html`<details><summary>As a table</summary>
    <div class="scroll" role="region" aria-label=${`${title} as a table`} tabindex="0"><table>
      <thead><tr><th scope="col">Time</th>${series.map((each) => html`<th scope="col" class="number">${each.name}</th>`)}</tr></thead>
      <tbody>${rows.map((i) => html`<tr><td>${time(times[i])}</td>${series.map((each) => html`<td class="number">${show(each.values[i])}</td>`)}</tr>`)}</tbody>
    </table></div>
  </details>`;
}
