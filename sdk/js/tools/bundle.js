// Writes what the talk page and the console need and do not write themselves: the SDK as one file, and
// the libraries as npm has them. With --check it only compares. The results are committed
// (docs/decisions/0050).
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { build } from "esbuild";

const SDK = dirname(import.meta.dirname);
const SERVICES = join(SDK, "../../services");

const PREACT = { file: "preact", name: "preact", from: "dist/preact.mjs" };
const HTM = { file: "htm", name: "htm", from: "dist/htm.module.js" };
const QR = { file: "lean-qr", name: "lean-qr", from: "index.mjs" };
const HOOKS = { file: "preact-hooks", name: "preact", from: "hooks/dist/hooks.mjs" };
const SIGNALS = { file: "signals", name: "@preact/signals", from: "dist/signals.mjs" };
const SIGNALS_CORE = {
  file: "signals-core",
  name: "@preact/signals-core",
  from: "dist/signals-core.mjs",
};

/** The SDK's modules as one file, readable, with nothing renamed. */
async function bundled(entry) {
  const result = await build({
    entryPoints: [join(SDK, entry)],
    bundle: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    write: false,
    absWorkingDir: SDK,
    banner: { js: `// Generated from sdk/js/${entry} by \`make js\`. Do not edit.` },
  });
  return result.outputFiles[0].text;
}

function vendored(libraries) {
  const files = {};
  const rows = [];
  for (const { file, name, from } of libraries) {
    const folder = join(SDK, "node_modules", name);
    const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const text = readFileSync(join(folder, from), "utf8");
    const licence = `${name.replace(/^@preact\//, "")}.LICENSE`;
    files[`vendor/${file}.js`] = text;
    files[`vendor/${licence}`] = readFileSync(join(folder, "LICENSE"), "utf8");
    const sum = createHash("sha256").update(text).digest("hex");
    rows.push(
      `| \`${file}.js\` | \`${name}\` ${manifest.version}, \`${from}\` | ${manifest.license} ` +
        `(\`${licence}\`) | \`${sum}\` |`,
    );
  }
  files["vendor/README.md"] = [
    "# Libraries of other projects",
    "",
    "Unchanged files of npm packages, so that the page loads nothing from elsewhere. To take another",
    "version, change it in `sdk/js/package.json` and run `make js`.",
    "",
    "| file | package | licence | SHA-256 |",
    "|---|---|---|---|",
    ...rows,
    "",
  ].join("\n");
  return files;
}

/** By the folder of the page. */
const PAGES = {
  "session_gateway/web/page": {
    "lingua/lingua.js": await bundled("src/index.ts"),
    "lingua/worklet.js": await bundled("src/microphone/worklet.ts"),
    ...vendored([PREACT, HTM, QR]),
  },
  "console/page": vendored([PREACT, HOOKS, SIGNALS, SIGNALS_CORE, HTM]),
};

const stale = [];
for (const [page, files] of Object.entries(PAGES)) {
  for (const [path, text] of Object.entries(files)) {
    const file = join(SERVICES, page, path);
    let found = "";
    try {
      found = readFileSync(file, "utf8");
    } catch {
      // Not there yet.
    }
    if (found === text) {
      continue;
    }
    stale.push(`${page}/${path}`);
    if (!process.argv.includes("--check")) {
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, text);
    }
  }
}
if (stale.length > 0 && process.argv.includes("--check")) {
  console.error(`${stale.join(", ")}: not what \`make js\` makes; run it`);
  process.exitCode = 1;
}
