// Package pt2 opens models from files of torch.export (.pt2): any PyTorch model that can be exported, without a
// description in Go.
//
// A file's graph has the operators that eager autograd sees. Recording them gives the step that eager PyTorch would
// run, at any batch size, precision and optimizer. The source lines in the stack traces show when Python releases a
// tensor; files of "vprof capture" store that with the graph.
package pt2
