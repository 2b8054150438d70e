// Package recorded reads and writes training steps that PyTorch ran, such as a user's script, and makes models of them
// that vprof can plan, show and compare. Forward and backward passes recorded at some batch sizes are interpolated to
// others. For a model under torch.compile they replace the model's own.
//
// A file (suffix .vprof, format [Schema]) is a [File] as gzip-compressed JSON. The events are a [program.Program] with
// the names of kinds, classes, works and precisions.
package recorded
