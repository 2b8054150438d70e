// Package export reads programs that torch.export.save has written (.pt2): zip archives with PyTorch's own serialized
// graph in JSON. Weights are not read, and nothing of a file is executed.
//
// A [Program] is the graph as a flat list of calls: the graphs nested in higher order operators (no_grad and autocast
// blocks) stand where they run. Values are numbered; sizes that depend on the batch are expressions of symbols.
//
// The schema is torch/_export/serde/schema.py, major version 8 (torch 2.6 to
// 2.15). Minor versions add optional fields, which are passed over.
//
// # What a captured file says besides its graph
//
// The archive's entry extra/vprof.json, which "vprof capture" writes, has what
// a graph does not say; see [Extra]. Without it everything else still works.
package export
