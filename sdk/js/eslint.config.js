import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  {
    ignores: ["dist", "build", "node_modules", "test/{page,room,console}", "eslint.page.config.js"],
  },
  js.configs.recommended,
  {
    files: ["**/*.ts"],
    extends: [...tseslint.configs.strictTypeChecked, ...tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: { project: "./tsconfig.test.json", tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      complexity: ["error", 12],
      "max-lines": ["error", 400],
      "@typescript-eslint/explicit-function-return-type": ["error", { allowExpressions: true }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      // A switch over a union must name every member, or have a default.
      "@typescript-eslint/switch-exhaustiveness-check": "error",
      // Tests hand over promises of `test()` to the runner.
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
    // Pure: no I/O, no clock, no timers.
    files: [
      "src/protocol/*.ts",
      "src/room/protocol/*.ts",
      "src/session/chunks.ts",
      "src/microphone/{resampler,segmenter,voice-activity}.ts",
      "src/player/speech-audio.ts",
    ],
    rules: {
      "no-restricted-globals": [
        "error",
        ...["Date", "console", "document", "fetch", "navigator", "performance", "queueMicrotask"],
        ...["setInterval", "setTimeout", "WebSocket", "window"],
      ],
      "no-restricted-properties": ["error", { object: "Math", property: "random" }],
      "no-restricted-imports": ["error", { patterns: ["node:*"] }],
    },
  },
  {
    files: ["src/protocol/*.ts"],
    rules: {
      "no-restricted-imports": [
        "error",
        { patterns: ["node:*", "../session/*", "../microphone/*", "../player/*"] },
      ],
    },
  },
  {
    files: ["tools/*.js"],
    languageOptions: { globals: { process: "readonly", console: "readonly" } },
  },
);
