// Package configfile changes single values in users' YAML, TOML and JSON files. It replaces bytes and never rewrites a
// document, so comments, order, quoting, anchors, indentation and line endings stay as they were. It then parses the
// result and compares it with the intended one. A file that it cannot change safely is refused.
//
// [Write] replaces several files as one: all of them or none, each with a backup that overwrites no older one.
package configfile
