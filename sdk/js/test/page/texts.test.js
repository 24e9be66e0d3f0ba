// @ts-check
/** Every text exists in every language, and every reason has words. */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import {
  TEXTS,
  interfaceFor,
  languageName,
  languageNameIn,
  reasonText,
  textsOf,
} from "../../../../services/session_gateway/web/page/app/texts.js";

const ROOT = new URL("../../../../", import.meta.url);
const APP = new URL("services/session_gateway/web/page/app/", ROOT);

const KEYS = Object.keys(TEXTS.en).sort();

/** @param {string} text */
function placeholders(text) {
  return [...text.matchAll(/\{\w+\}/g)].map(([found]) => found).sort();
}

for (const [language, table] of Object.entries(TEXTS)) {
  test(`no text is missing in ${language}, and each has the same placeholders`, () => {
    assert.deepEqual(Object.keys(table).sort(), KEYS);
    for (const [key, text] of Object.entries(table)) {
      assert.notEqual(text.trim(), "", key);
      const english = TEXTS.en[/** @type {keyof typeof TEXTS.en} */ (key)];
      assert.deepEqual(placeholders(text), placeholders(english), key);
    }
  });
}

test("every text is used", () => {
  const code = readdirSync(APP)
    .filter((name) => !name.startsWith("text-"))
    .map((name) => readFileSync(new URL(name, APP), "utf8"))
    .join("\n");
  const byName = /^(missing|problem|time|connection|token|hint)\./;
  const unused = KEYS.filter((key) => !byName.test(key) && !code.includes(`"${key}"`));
  assert.deepEqual(unused, []);
});

test("every reason that users can meet has words of its own", () => {
  const proto = readFileSync(new URL("protos/lingua_scheduler/v1/common.proto", ROOT), "utf8");
  const reasons = [...proto.matchAll(/ERROR_REASON_(\w+) = [1-9]/g)].map(([, name = ""]) => name);
  assert(reasons.length > 20);
  // What only nodes, operators' tools or the services themselves get.
  const notForUsers = [
    "NODE_ID_CONFLICT",
    "NODE_NOT_FOUND",
    "NODE_EPOCH_OLD",
    "JOB_NOT_FOUND",
    "HELD_AUDIO_NEEDED",
  ];
  for (const reason of reasons.filter((each) => !notForUsers.includes(each))) {
    const isThere = `missing.${reason}` in TEXTS.en || `problem.${reason}` in TEXTS.en;
    assert(isThere, reason);
  }
  const errors = readFileSync(new URL("sdk/js/src/errors.ts", ROOT), "utf8");
  const typed = [...errors.matchAll(/^ {2}\| "([A-Z_]+)"/gm)].map(([, name = ""]) => name);
  assert(typed.length > 10);
  for (const reason of typed) {
    assert(`problem.${reason}` in TEXTS.en, reason);
  }
});

test("an unknown reason is named", () => {
  for (const language of /** @type {const} */ (["en", "es", "zh"])) {
    assert.match(reasonText(textsOf(language), "missing", "NEW_REASON"), /NEW_REASON/);
    assert.doesNotMatch(reasonText(textsOf(language), "problem", "UNREACHABLE"), /UNREACHABLE/);
  }
  assert.equal(reasonText(textsOf("en"), "missing", "X".repeat(5000)).length < 120, true);
});

test("blocked sound is explained for the microphone as well as for the player", () => {
  for (const table of Object.values(TEXTS)) {
    assert.doesNotMatch(table["problem.BLOCKED"], /play|reprodu|播放/i);
  }
});

test("languages are written in a sentence as its language writes them", () => {
  assert.equal(languageNameIn("es", "en"), "Spanish");
  assert.equal(languageNameIn("es", "es"), "español");
  assert.equal(languageNameIn("en", "zh"), "英语");
  assert.equal(languageNameIn("not a code", "es"), "not a code");
  const [from, to] = [languageNameIn("es", "es"), languageNameIn("en", "es")];
  assert.match(textsOf("es")("half.oneWay", { from, to }), /de español a inglés\./);
});

test("languages are called by their own names, and unknown ones by their codes", () => {
  assert.equal(languageName("es"), "Español");
  assert.equal(languageName("zh"), "中文");
  assert.equal(languageName("not a code"), "Not a code");
  assert.equal(interfaceFor("zh-Hant-TW"), "zh");
  assert.equal(interfaceFor("fr"), null);
});
