// @ts-check
/** Which part of the matrix source x target is shown, and how a cell looks. */

/** @typedef {readonly [free: number, slots: number, readyNodes: number]} Cell */
/** @typedef {0 | 1 | 2 | 3 | 4} Level 0: no slots, 1: none is free, ... 4: half or more are free. */

/** Above this many targets cells have no numbers, only colours. */
const ROOMY_TARGETS = 14;

/**
 * @param {Cell} cell
 * @returns {Level}
 */
export function levelOf([free, slots]) {
  if (slots <= 0) {
    return 0;
  }
  const share = free / slots;
  if (free <= 0) {
    return 1;
  }
  return share < 0.15 ? 2 : share < 0.5 ? 3 : 4;
}

/**
 * Languages whose code or name starts with one of the words; all if there are no words.
 *
 * @param {readonly string[]} codes
 * @param {string} filter
 * @param {(code: string) => string} nameOf
 */
export function matching(codes, filter, nameOf) {
  const words = filter
    .toLowerCase()
    .split(/[\s,]+/)
    .filter((word) => word !== "");
  if (words.length === 0) {
    return codes;
  }
  return codes.filter((code) =>
    words.some(
      (word) => code.toLowerCase().startsWith(word) || nameOf(code).toLowerCase().startsWith(word),
    ),
  );
}

/** Whether cells have room for their numbers. @param {readonly string[]} targets */
export function isRoomy(targets) {
  return targets.length <= ROOMY_TARGETS;
}

/**
 * Where an arrow key leads; the same place at an edge.
 *
 * @param {{ row: number, column: number }} from
 * @param {string} key
 * @param {{ rows: number, columns: number }} size
 * @returns {{ row: number, column: number } | null} null if the key moves nothing.
 */
export function moved({ row, column }, key, { rows, columns }) {
  /** @type {Record<string, [number, number]>} */
  const places = {
    ArrowUp: [row - 1, column],
    ArrowDown: [row + 1, column],
    ArrowLeft: [row, column - 1],
    ArrowRight: [row, column + 1],
    Home: [row, 0],
    End: [row, columns - 1],
    PageUp: [row - 10, column],
    PageDown: [row + 10, column],
  };
  const place = places[key];
  if (place === undefined) {
    return null;
  }
  return {
    row: Math.min(Math.max(place[0], 0), rows - 1),
    column: Math.min(Math.max(place[1], 0), columns - 1),
  };
}
