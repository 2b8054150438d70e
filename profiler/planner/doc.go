// Package planner estimates the memory of a training step at any batch size from replays at a few of them.
//
// A [Sample] is the replayed memory at one batch size. A [Curve] interpolates samples piecewise linearly, because
// almost every tensor of a step has a size that is fixed or proportional to the batch. Between two samples with the
// same peak, the allocated bytes are linear except for rounding. [Coefficients], with an error and a source, describe
// what no recording contains: the CUDA context, and the errors of replays compared with PyTorch.
//
// Every estimate has an interval. Its width is the sum of three parts, each measured: the residuals of replays against
// reference records, the error of interpolation on held-out samples, and the uncertainty of the context.
package planner
