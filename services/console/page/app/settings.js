// @ts-check
/** Which settings and instances are shown, and what is odd about them. */

/** @import { InstanceRow, Setting } from "./types.js" */

/**
 * @param {readonly Setting[]} settings
 * @param {{ search?: string, differences?: boolean }} filter every word of `search` is in the name,
 *   the variable, the description, the group or a value.
 * @returns {{ group: string, settings: Setting[] }[]} in the order of the document.
 */
export function groupsOf(settings, { search = "", differences = false }) {
  const words = search
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  /** @type {Map<string, Setting[]>} */
  const groups = new Map();
  for (const setting of settings) {
    if (
      (differences && !setting.differs) ||
      !words.every((word) => textOf(setting).includes(word))
    ) {
      continue;
    }
    const group = groups.get(setting.group) ?? [];
    group.push(setting);
    groups.set(setting.group, group);
  }
  return [...groups].map(([group, own]) => ({ group, settings: own }));
}

/** @param {Setting} setting */
function textOf({ group, name, variable, description, values }) {
  const given = values.flatMap(({ value, origin }) => [value, origin]);
  return [group, name, variable, description, ...given].join("\n").toLowerCase();
}

/**
 * The version that most instances have. Others are marked: an update is under way, or got stuck.
 *
 * @param {readonly InstanceRow[]} instances
 */
export function commonVersion(instances) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { version } of instances) {
    counts.set(version, (counts.get(version) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";
}

/**
 * What an instance counts, without histograms: names in words, in the order of the document.
 *
 * @param {Readonly<Record<string, unknown>>} stats
 */
export function countersOf(stats) {
  return Object.entries(stats).flatMap(([name, value]) =>
    typeof value === "number" ? [{ name: name.replaceAll("_", " "), value }] : [],
  );
}
