// Package planner estimates the memory of a training step at any batch size from replays at a few of them.
//
// What a replay says about one batch size is a [Sample]. A [Curve] goes through some samples, piecewise linear, because
// almost every tensor of a step has either a fixed size or one proportional to the batch; between two samples with the
// same peak the allocated bytes are linear to within rounding. What no recording can know, the CUDA context and how far
// our replays are from PyTorch, are [Coefficients] with an error and a source.
//
// Every estimate has an interval. Its width is the sum of three parts, each measured: the residuals of replays against
// reference records, the error that interpolation makes on samples held out, and the uncertainty of the context.
package planner
