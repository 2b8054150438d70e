// Package pt2 trains models that torch.export has written to a file (.pt2): any
// PyTorch model that can be exported, without a description in Go.
//
// A file's graph has the operators that eager autograd sees, so walking it with the recorder gives the step that eager
// PyTorch would run, at any batch size, precision and optimizer. What the graph does not say is when Python releases a
// tensor; that is read from the source lines in the stack traces of the calls. Files of "vprof capture" have it next to
// the graph.
package pt2
