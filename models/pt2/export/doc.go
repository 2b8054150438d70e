// Package export reads programs that torch.export.save has written (.pt2): zip archives with PyTorch's serialized graph
// as JSON. It does not read weights, and executes nothing of a file.
//
// A [Program] is the graph as a flat list of calls: graphs nested in higher-order operators (no_grad and autocast
// blocks) are inlined where they run. Values are numbered; sizes that depend on the batch are expressions of symbols.
//
// The schema is torch/_export/serde/schema.py, major version 8 (torch 2.6 to 2.15). Minor versions add optional fields,
// which are skipped.
//
// # Additions of vprof capture
//
// The archive's entry extra/vprof.json, which "vprof capture" writes, has what a graph lacks; see [Extra]. Files
// without it work as well.
package export
