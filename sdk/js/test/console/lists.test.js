// @ts-check
/** The matrix, sorting and paging, settings, words. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { orderOf, pageFacts, sortedBy } from "../../../../services/console/page/app/filters.js";
import { directionName, languageName } from "../../../../services/console/page/app/languages.js";
import { isRoomy, levelOf, matching, moved } from "../../../../services/console/page/app/matrix.js";
import {
  commonVersion,
  countersOf,
  groupsOf,
} from "../../../../services/console/page/app/settings.js";
import { JOB_STATES, sentence, wordOf } from "../../../../services/console/page/app/words.js";

test("the colour of a cell tells the share of free slots", () => {
  const cells = /** @type {[number, number, number][]} */ ([
    [0, 0, 0],
    [0, 8, 1],
    [1, 100, 1],
    [20, 100, 1],
    [50, 100, 1],
  ]);
  assert.deepEqual(cells.map(levelOf), [0, 1, 2, 3, 4]);
});

test("languages are found by code and by name", () => {
  const codes = ["en", "es", "et", "*"];
  assert.deepEqual(matching(codes, "", languageName), codes);
  assert.deepEqual(matching(codes, "es", languageName), ["es", "et"]);
  assert.deepEqual(matching(codes, "Spanish, en", languageName), ["en", "es"]);
  assert.deepEqual(matching(codes, "any", languageName), ["*"]);
});

test("a code that is no language is its own name", () => {
  assert.equal(directionName("en", "*"), "English to any language");
  assert.equal(languageName("not a code"), "not a code");
});

test("arrow keys stop at the edges of the matrix", () => {
  const size = { rows: 3, columns: 4 };
  assert.deepEqual(moved({ row: 0, column: 0 }, "ArrowLeft", size), { row: 0, column: 0 });
  assert.deepEqual(moved({ row: 1, column: 1 }, "End", size), { row: 1, column: 3 });
  assert.deepEqual(moved({ row: 1, column: 1 }, "PageDown", size), { row: 2, column: 1 });
  assert.equal(moved({ row: 1, column: 1 }, "Enter", size), null);
});

test("small matrices show numbers, large ones only colours", () => {
  assert.ok(isRoomy(["en", "es"]));
  assert.ok(!isRoomy(Array.from({ length: 60 }, String)));
});

test("a second click on a column reverses it", () => {
  const usual = { sort: "changed", desc: true };
  assert.deepEqual(orderOf({}, usual), usual);
  assert.deepEqual(orderOf({ sort: "took" }, usual), { sort: "took", desc: false });
  assert.deepEqual(sortedBy(usual, "changed", true), { sort: "changed", desc: "0" });
  assert.deepEqual(sortedBy(usual, "took", true), { sort: "took", desc: "1" });
});

test("a page says which rows it has", () => {
  assert.deepEqual(pageFacts({ total: 120, offset: 100, limit: 50 }, { page: "3" }), {
    ...{ from: 101, to: 120, total: 120, page: 3, pages: 3 },
  });
  assert.equal(pageFacts({ total: 0 }, {}).from, 0);
});

const SETTINGS = [
  {
    ...{ group: "general", name: "log_level", variable: "LINGUA_LOG_LEVEL", description: "Logs" },
    ...{ differs: true, values: [{ value: "debug", origin: "environment", instances: ["a"] }] },
  },
  {
    ...{ group: "gateway", name: "pause_ms", variable: "LINGUA_PAUSE_MS", description: "A pause" },
    ...{ differs: false, values: [{ value: "800", origin: "default", instances: ["a"] }] },
  },
];

test("settings are found by every word, in names, descriptions and values", () => {
  /** @param {Parameters<typeof groupsOf>[1]} filter */
  const found = (filter) =>
    groupsOf(SETTINGS, filter).flatMap(({ settings }) => settings.map((s) => s.name));
  assert.deepEqual(found({}), ["log_level", "pause_ms"]);
  assert.deepEqual(found({ search: "800 pause" }), ["pause_ms"]);
  assert.deepEqual(found({ search: "DEBUG" }), ["log_level"]);
  assert.deepEqual(found({ differences: true }), ["log_level"]);
  assert.deepEqual(found({ differences: true, search: "pause" }), []);
});

test("the version of most instances is the usual one", () => {
  const instances = ["1", "2", "2"].map((version, index) => ({
    ...{ id: String(index), service: "pool", version, address: "", health: "serving" },
    ...{ started_ms: 0, announced_ms: 0, stats: {} },
  }));
  assert.equal(commonVersion(instances), "2");
  assert.equal(commonVersion([]), "");
});

test("counters leave out what is no number", () => {
  assert.deepEqual(countersOf({ jobs_done: 3, result_counts: [1, 2] }), [
    { name: "jobs done", value: 3 },
  ]);
});

test("a word of a newer server is shown as it is", () => {
  assert.equal(wordOf(JOB_STATES, "done").label, "Done");
  assert.deepEqual(wordOf(JOB_STATES, "constructor"), {
    ...{ label: "Constructor", tone: "quiet", meaning: "" },
  });
  assert.equal(sentence("NO_CAPABLE_NODE"), "No capable node");
});
