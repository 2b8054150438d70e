// Package pt2 trains models that torch.export has written to a file (.pt2): any
// PyTorch model that can be exported, without a description in Go.
//
// A file's graph has the operators that eager autograd sees, so walking it with the recorder gives the step that eager
// PyTorch would run, at any batch size, precision and optimizer. When Python releases a tensor is read from the source
// lines in the calls' stack traces. Files of "vprof capture" have it next to the graph.
package pt2
