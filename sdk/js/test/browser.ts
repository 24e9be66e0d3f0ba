/** A real Chromium with a fake microphone, and a page with a strict content security policy. */

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";

import { type Browser, chromium, type Page } from "playwright-core";

import { Peer } from "./peer.js";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const DIST = new URL("../../dist/", import.meta.url).pathname;
/** Resolves to the loopback address, but is not localhost: not a secure context. */
const STRANGE_HOST = "page.test";

/** Why the tests with a browser are skipped, or false. */
export const noBrowser: string | false = existsSync(CHROMIUM)
  ? false
  : "needs Chromium: apt-get install --no-install-recommends chromium, or CHROMIUM=path";

const POLICY =
  "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'";
const PAGE = `<!doctype html><title>test</title><button>tap</button>
<script type="module" src="/page.js"></script>`;
const SCRIPT = `import * as sdk from "/dist/index.js";
globalThis.sdk = sdk;`;

/** A WAV file of 16-bit PCM with one channel. */
export function wav(samples: Int16Array, rate: number): Buffer {
  const header = Buffer.alloc(44);
  header.write("RIFF", 0);
  header.writeUInt32LE(36 + samples.byteLength, 4);
  header.write("WAVEfmt ", 8);
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(1, 22);
  header.writeUInt32LE(rate, 24);
  header.writeUInt32LE(rate * 2, 28);
  header.writeUInt16LE(2, 32);
  header.writeUInt16LE(16, 34);
  header.write("data", 36);
  header.writeUInt32LE(samples.byteLength, 40);
  return Buffer.concat([
    header,
    Buffer.from(samples.buffer, samples.byteOffset, samples.byteLength),
  ]);
}

/** A browser whose microphone hears this file over and over. */
export class TestBrowser {
  readonly peer = new Peer();
  #browser: Browser | null = null;
  #folder = mkdtempSync(join(tmpdir(), "lingua-js-"));

  async start(heard: Buffer): Promise<void> {
    const file = join(this.#folder, "heard.wav");
    writeFileSync(file, heard);
    this.peer.serve = serve;
    await this.peer.start();
    this.#browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--use-fake-device-for-media-stream",
        `--use-file-for-fake-audio-capture=${file}`,
        `--host-resolver-rules=MAP ${STRANGE_HOST} 127.0.0.1`,
      ],
    });
  }

  /** Opens the page. The microphone is allowed or denied; the host may be no secure context. */
  async page({ microphone = true, secure = true } = {}): Promise<Page> {
    if (this.#browser === null) {
      throw new Error("the browser is not started");
    }
    const context = await this.#browser.newContext({
      permissions: microphone ? ["microphone"] : [],
    });
    const page = await context.newPage();
    const origin = this.peer.address.replace("ws:", "http:");
    await page.goto(secure ? origin : origin.replace("127.0.0.1", STRANGE_HOST));
    await page.waitForFunction("globalThis.sdk !== undefined");
    return page;
  }

  async stop(): Promise<void> {
    await this.#browser?.close();
    this.peer.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function serve(request: IncomingMessage, response: ServerResponse): boolean {
  const path = request.url ?? "/";
  const found = path === "/" ? PAGE : path === "/page.js" ? SCRIPT : fileAt(path);
  if (found === null) {
    return false;
  }
  const type = path === "/" ? "text/html" : "text/javascript";
  response.writeHead(200, { "Content-Type": type, "Content-Security-Policy": POLICY });
  response.end(found);
  return true;
}

function fileAt(path: string): string | null {
  const file = normalize(join(DIST, path.replace(/^\/dist\//, "")));
  const isThere = path.startsWith("/dist/") && file.startsWith(DIST) && existsSync(file);
  return isThere ? readFileSync(file, "utf8") : null;
}
