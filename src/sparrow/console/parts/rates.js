// Rates between two looks at running totals.
import { useRef } from "../lib.js";

/**
 * Return the rate of each row since it was looked at before (at least a second ago); null at first.
 * @param {any[]} rows @param {(row: any) => string} keyOf @param {string[]} names @param {number} at ms
 * @returns {Record<string, Record<string, number | null>>}
 */
export function useRates(rows, keyOf, names, at) {
  const before = useRef(/** @type {{at: number, totals: Record<string, any>, rates: Record<string, any>}} */ ({ at: 0, totals: {}, rates: {} }));
  const old = before.current;
  if (at - old.at < 1000 && old.at) return old.rates;
  const totals = Object.fromEntries(rows.map((row) => [keyOf(row), row]));
  const seconds = (at - old.at) / 1000;
  const rates = Object.fromEntries(
    rows.map((row) => {
      const last = old.totals[keyOf(row)];
      return [keyOf(row), Object.fromEntries(names.map((name) => [name, last && old.at ? Math.max(0, row[name] - last[name]) / seconds : null]))];
    }),
  );
  before.current = { at, totals, rates };
  return rates;
}
