// @ts-check
/** Small parts of the room page: links, languages, the QR code, texts. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { describe, test } from "node:test";

import jsQR from "jsqr";

import {
  firstChoice,
  listenable,
  speakable,
} from "../../../../services/session_gateway/web/page/room/languages.js";
import {
  invitationIn,
  invitationOf,
  isReachable,
  linkTo,
} from "../../../../services/session_gateway/web/page/room/link.js";
import { qrCode } from "../../../../services/session_gateway/web/page/room/qr.js";
import {
  refusalText,
  ROOM_TEXTS,
  roomTextsOf,
} from "../../../../services/session_gateway/web/page/room/texts.js";
import { listened, speaker } from "./page.js";

const PAGE = new URL("../../../../services/session_gateway/web/page/room/", import.meta.url);
const TOKEN = "room.23098a4c2ea9be5b93.l.1795053460.mK_Fm2Tt2lXX.9kdH0HGvmkemiuodyaFo-Np2Wlwvg7qRR";

describe("links", () => {
  const invitation = /** @type {const} */ ({ roomId: "r-1", token: TOKEN, role: "listener" });

  test("a link leads to its room, and keeps its secret in the fragment", () => {
    for (const role of /** @type {const} */ (["listener", "speaker"])) {
      const link = new URL(linkTo("https://example.org", invitation, role));
      assert.equal(link.pathname, "/room");
      assert.equal(link.search, "");
      assert.deepEqual(invitationIn(link.hash), { ...invitation, role });
      assert.deepEqual(invitationOf(` ${link.href}\n`), { ...invitation, role });
    }
  });

  test("what is no link is none", () => {
    for (const wrong of ["", "#", "#token=x", "#room=a%20b&token=x", "#room=<b>"]) {
      assert.equal(invitationIn(wrong), null, wrong);
    }
    assert.deepEqual(invitationIn("#room=r-1&token=<script>"), { ...invitation, token: "" });
    assert.deepEqual(invitationIn("#room=r-1"), { ...invitation, token: "" });
    assert.equal(invitationOf("https://example.org/room#room=r-1"), null);
    assert.equal(invitationOf("hello"), null);
    assert.equal(invitationIn(`#room=r-1&token=${"x".repeat(600)}`)?.token, "");
  });

  test("nobody else can reach this machine by the name that it has for itself", () => {
    for (const name of ["localhost", "127.0.0.1", "[::1]"]) {
      assert(!isReachable(name), name);
    }
    assert(isReachable("192.168.1.5") && isReachable("talk.example"));
  });
});

describe("languages", () => {
  /**
   * @param {string} src
   * @param {string} tgt
   */
  const direction = (src, tgt) => ({ src, tgt, speech: true, room: true });
  const directions = [direction("en", "es"), direction("en", "de"), direction("fr", "*")];

  test("what nodes understand can be spoken, if the room allows it", () => {
    assert.deepEqual(speakable(directions, []), ["en", "fr"]);
    assert.deepEqual(speakable(directions, ["FR", "it"]), ["fr"]);
  });

  test("what can be translated from the speakers' languages can be heard, and these languages", () => {
    const english = { listeners: 0, languages: [], speakers: [speaker("en")] };
    assert.deepEqual(listenable(directions, english, []), ["de", "en", "es"]);
    assert.deepEqual(listenable(directions, english, ["es", "it"]), ["es"]);
    const french = { ...english, speakers: [speaker("fr")] };
    assert.deepEqual(listenable(directions, french, ["it", "en"]), ["en", "it"]);
  });

  test("before somebody speaks everything is offered, and what others listen to in any case", () => {
    assert.deepEqual(listenable(directions, null, []), ["de", "en", "es", "fr"]);
    const used = { listeners: 1, languages: [listened("pt", 1)], speakers: [speaker("en")] };
    assert.deepEqual(listenable(directions, used, []), ["de", "en", "es", "pt"]);
  });

  test("the first choice is the best of what there is", () => {
    assert.equal(firstChoice(["de", "pt-BR", "zh"], ["pt", "de"]), "pt-BR");
    assert.equal(firstChoice(["de", "zh"], ["fr"]), "de");
    assert.equal(firstChoice([], ["fr"]), "");
  });
});

test("a phone reads the code of a link", () => {
  const link = linkTo("https://talk.example:8443", { roomId: "r-1", token: TOKEN }, "listener");
  const { size, path } = qrCode(link);
  const scale = 4;
  const side = size * scale;
  const pixels = new Uint8ClampedArray(4 * side * side).fill(255);
  for (const [, x = "", y = ""] of path.matchAll(/M(\d+) (\d+)h1v1h-1z/g)) {
    for (let at = 0; at < scale * scale; at += 1) {
      const left = Number(x) * scale + (at % scale);
      const top = Number(y) * scale + Math.floor(at / scale);
      pixels.fill(0, 4 * (top * side + left), 4 * (top * side + left) + 3);
    }
  }
  assert.equal(jsQR(pixels, side, side)?.data, link);
});

describe("texts", () => {
  const keys = Object.keys(ROOM_TEXTS.en).sort();

  /** @param {string} text */
  const placeholders = (text) => [...text.matchAll(/\{\w+\}/g)].map(([found]) => found).sort();

  for (const [language, table] of Object.entries(ROOM_TEXTS)) {
    test(`no text is missing in ${language}, and each has the same placeholders`, () => {
      assert.deepEqual(Object.keys(table).sort(), keys);
      for (const [key, text] of Object.entries(table)) {
        const english = ROOM_TEXTS.en[/** @type {keyof typeof ROOM_TEXTS.en} */ (key)];
        assert.notEqual(text.trim(), "", key);
        assert.deepEqual(placeholders(text), placeholders(english), key);
      }
    });
  }

  test("every text is used", () => {
    const code = readdirSync(PAGE)
      .filter((name) => !name.startsWith("text-"))
      .map((name) => readFileSync(new URL(name, PAGE), "utf8"))
      .join("\n");
    const byName = /^(refusal|line)\.[A-Z]|^invite\.(listener|speaker)$/;
    assert.deepEqual(
      keys.filter((key) => !byName.test(key) && !code.includes(`"${key}"`)),
      [],
    );
  });

  test("a refusal that nobody has thought of is explained in general", () => {
    assert.match(refusalText(roomTextsOf("en"), "NEW_REASON"), /went wrong/);
    assert.match(refusalText(roomTextsOf("en"), "NO_TOKEN"), /incomplete/);
  });
});
