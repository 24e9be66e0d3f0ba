// For the talk page and its tests. Run from the repository's root: the files are outside sdk/js.
import js from "@eslint/js";
import tseslint from "typescript-eslint";

const PAGE = "services/session_gateway/web/page/app";

export default tseslint.config(
  js.configs.recommended,
  {
    files: [`${PAGE}/*.js`, "sdk/js/test/page/*.js"],
    extends: [...tseslint.configs.recommendedTypeChecked],
    languageOptions: {
      parserOptions: { project: "./tsconfig.page.json", tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      complexity: ["error", 12],
      "max-lines": ["error", 400],
      // tsc knows the globals.
      "no-undef": "off",
      "@typescript-eslint/no-floating-promises": [
        "error",
        {
          allowForKnownSafeCalls: [
            { from: "package", package: "node:test", name: ["test", "describe"] },
          ],
        },
      ],
    },
  },
  {
    // Texts of nodes are never markup.
    files: [`${PAGE}/*.js`],
    rules: {
      "no-restricted-properties": [
        "error",
        { property: "innerHTML" },
        { property: "outerHTML" },
        { property: "insertAdjacentHTML" },
        { property: "dangerouslySetInnerHTML" },
      ],
    },
  },
  {
    // Pure: no I/O, no clock, no document.
    files: ["state", "utterances", "offer", "facts", "texts"].map((name) => `${PAGE}/${name}.js`),
    rules: {
      "no-restricted-globals": [
        "error",
        ...["Date", "console", "document", "fetch", "localStorage", "location", "navigator"],
        ...["performance", "queueMicrotask", "sessionStorage", "setInterval", "setTimeout"],
        ...["window"],
      ],
      "no-restricted-imports": ["error", { patterns: ["./html.js", "./sdk.js"] }],
    },
  },
);
