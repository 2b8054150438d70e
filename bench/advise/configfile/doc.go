// Package configfile changes single values in people's YAML, TOML and JSON files. It splices bytes and never writes a
// document anew, so comments, order, quoting, anchors, indentation and line endings stay as they were. What it has
// spliced it parses again and compares with what was meant; a file that it cannot change safely is refused.
//
// [Write] replaces several files as one: all of them or none, with a backup of each that overwrites no older one.
package configfile
