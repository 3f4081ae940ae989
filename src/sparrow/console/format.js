// Numbers, sizes and times as people read them.

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : number.format(value);
}

/** @param {number | null | undefined} value events per second */
export function rate(value) {
  return value === null || value === undefined ? "–" : `${number.format(value)}/s`;
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined || value < 0) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (value >= 1024 && power < units.length - 1) {
    value /= 1024;
    power += 1;
  }
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toFixed(1)} ${units[power]}`;
}

/** @param {number | null | undefined} value bytes per second */
export function byteRate(value) {
  return value === null || value === undefined ? "–" : `${bytes(value)}/s`;
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  if (ms < 1000) return `${ms < 10 ? Number(ms.toFixed(1)) : Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

/**
 * Local time, to the second.
 * @param {number} ms
 */
export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/**
 * Local time of the day, to the minute.
 * @param {number} ms
 */
export const clock = (ms) => time(ms).slice(11, 16);

/**
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export function plural(n, one, many) {
  return `${count(n)} ${n === 1 ? one : many || `${one}s`}`;
}

/**
 * A word for the shell.
 * @param {string | number} text
 */
export function shell(text) {
  const word = String(text);
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
