// @ts-check
/** Numbers and times as people read them. Times are milliseconds since the epoch. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const HUNDREDTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

/** For what is not known. */
export const NONE = "–";

/** 12,345 @param {number | undefined} value */
export function count(value) {
  return value === undefined ? NONE : WHOLE.format(value);
}

/** A number a second: 0.25, 3.4, 1,234. @param {number | undefined} value */
export function rate(value) {
  if (value === undefined || value < 0) {
    return NONE;
  }
  const format = value < 1 ? HUNDREDTHS : value < 100 ? TENTHS : WHOLE;
  // What happens is not shown as nothing.
  return value > 0 && value < 0.005 ? "<0.01" : format.format(value);
}

/** 0.4 is 40%. @param {number | undefined} share */
export function percent(share) {
  return share === undefined ? NONE : `${WHOLE.format(share * 100)}%`;
}

/** 850 ms, 1.2 s, 48 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. @param {number | undefined} ms */
export function duration(ms) {
  if (ms === undefined || ms < 0) {
    return NONE;
  }
  if (ms < SECOND) {
    return ms > 0 && ms < 10 ? `${TENTHS.format(ms)} ms` : `${WHOLE.format(ms)} ms`;
  }
  // Rounded first: 59.96 s is "1 min", never "60 s".
  if (Math.round(ms / 100) * 100 < 10 * SECOND) {
    return `${(ms / SECOND).toFixed(1)} s`;
  }
  const seconds = Math.round(ms / SECOND);
  if (seconds < 60) {
    return `${seconds} s`;
  }
  return longDuration(seconds);
}

/** @param {number} seconds at least 60. */
function longDuration(seconds) {
  if (seconds < 3600) {
    return pair(Math.floor(seconds / 60), "min", seconds % 60, "s");
  }
  const minutes = Math.round(seconds / 60);
  if (minutes < 24 * 60) {
    return pair(Math.floor(minutes / 60), "h", minutes % 60, "min");
  }
  const hours = Math.round(minutes / 60);
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

/**
 * @param {number} large
 * @param {string} unit
 * @param {number} small
 * @param {string} smallUnit
 */
function pair(large, unit, small, smallUnit) {
  return small === 0 ? `${WHOLE.format(large)} ${unit}` : `${large} ${unit} ${small} ${smallUnit}`;
}

/** For steps, which may be very short: 85 µs, 1.25 ms, 850 ms, 1.2 s. @param {number} us */
export function microseconds(us) {
  if (us < 1000) {
    return `${WHOLE.format(us)} µs`;
  }
  return us < 10_000 ? `${HUNDREDTHS.format(us / 1000)} ms` : duration(us / 1000);
}

/**
 * 12 s ago, in 3 min. One unit is enough.
 *
 * @param {number | undefined} ms
 * @param {number} nowMs
 */
export function ago(ms, nowMs) {
  if (ms === undefined) {
    return NONE;
  }
  const away = Math.abs(nowMs - ms);
  if (away < 2 * SECOND) {
    return "just now";
  }
  const text = coarse(away);
  return ms > nowMs ? `in ${text}` : `${text} ago`;
}

/** 12 s, 3 min, 2 h, 4 d: one unit, cut off. @param {number} ms */
export function coarse(ms) {
  if (ms < MINUTE) {
    return `${Math.floor(Math.max(ms, 0) / SECOND)} s`;
  }
  if (ms < HOUR) {
    return `${Math.floor(ms / MINUTE)} min`;
  }
  return ms < DAY ? `${Math.floor(ms / HOUR)} h` : `${Math.floor(ms / DAY)} d`;
}

/** @type {Map<string, Intl.DateTimeFormat>} */
const EXACT = new Map();

/**
 * 2026-02-03 14:03:22.123 GMT+1, in the viewer's zone.
 *
 * @param {number | undefined} ms
 * @param {string} [zone] for tests.
 */
export function exact(ms, zone) {
  if (ms === undefined) {
    return "";
  }
  const part = partsOf(ms, zone);
  return (
    `${part["year"]}-${part["month"]}-${part["day"]} ` +
    `${part["hour"]}:${part["minute"]}:${part["second"]}.${part["fractionalSecond"]} ` +
    `${part["timeZoneName"]}`
  );
}

/**
 * 14:03:22
 *
 * @param {number | undefined} ms
 * @param {string} [zone]
 */
export function clock(ms, zone) {
  if (ms === undefined) {
    return NONE;
  }
  const part = partsOf(ms, zone);
  return `${part["hour"]}:${part["minute"]}:${part["second"]}`;
}

/**
 * 2026-02-03T14:03, as inputs of type datetime-local want it.
 *
 * @param {number | undefined} ms
 * @param {string} [zone]
 */
export function local(ms, zone) {
  if (ms === undefined) {
    return "";
  }
  const part = partsOf(ms, zone);
  return `${part["year"]}-${part["month"]}-${part["day"]}T${part["hour"]}:${part["minute"]}`;
}

/**
 * @param {number} ms
 * @param {string | undefined} zone
 * @returns {Record<string, string>}
 */
function partsOf(ms, zone) {
  let format = EXACT.get(zone ?? "");
  if (format === undefined) {
    format = new Intl.DateTimeFormat("en", {
      ...{ year: "numeric", month: "2-digit", day: "2-digit", hourCycle: "h23" },
      ...{ hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 },
      ...{ timeZoneName: "shortOffset", timeZone: zone },
    });
    EXACT.set(zone ?? "", format);
  }
  return Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, value]));
}

/**
 * 1 node, 2 nodes.
 *
 * @param {number} number
 * @param {string} one
 * @param {string} [many]
 */
export function plural(number, one, many = `${one}s`) {
  return `${WHOLE.format(number)} ${number === 1 ? one : many}`;
}
