// @ts-check
/** JSON merge patches (RFC 7396): what a document becomes when the server sends a change of it. */

/** @typedef {{ [key: string]: unknown }} Json */

/**
 * Applies a patch. Parts that do not change stay the same objects, so that views can compare them.
 *
 * @param {unknown} target
 * @param {unknown} patch
 * @returns {unknown}
 */
export function mergePatch(target, patch) {
  if (!isObject(patch)) {
    return patch;
  }
  const before = isObject(target) ? target : {};
  /** @type {Json | null} */
  let after = isObject(target) ? null : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) {
      if (Object.hasOwn(before, key)) {
        after ??= copyOf(before);
        delete after[key];
      }
      continue;
    }
    const old = Object.hasOwn(before, key) ? before[key] : undefined;
    const next = mergePatch(old, value);
    if (next !== old) {
      after ??= copyOf(before);
      set(after, key, next);
    }
  }
  return after ?? before;
}

/**
 * @param {unknown} value
 * @returns {value is Json}
 */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {Json} from */
function copyOf(from) {
  /** @type {Json} */
  const copy = {};
  for (const [key, value] of Object.entries(from)) {
    set(copy, key, value);
  }
  return copy;
}

/**
 * Ids are keys of rows, and "__proto__" is an id like others.
 *
 * @param {Json} object
 * @param {string} key
 * @param {unknown} value
 */
function set(object, key, value) {
  Object.defineProperty(object, key, {
    value,
    writable: true,
    enumerable: true,
    configurable: true,
  });
}
