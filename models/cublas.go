package models

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

var (
	cublasWorkspace = regexp.MustCompile(`^(:\d{1,9}:\d{1,4}){1,8}$`)
	cublasBuffers   = regexp.MustCompile(`:(\d+):(\d+)`)
)

// cublasBytes is the workspace that PyTorch allocates for a CUBLAS_WORKSPACE_CONFIG, in bytes: pairs of KiB and how
// many buffers of that size (parseChosenWorkspaceSize in ATen/cuda/CublasHandlePool.cpp).
func cublasBytes(config string) (bytes int64) {
	for _, pair := range cublasBuffers.FindAllStringSubmatch(config, -1) {
		size, _ := strconv.ParseInt(pair[1], 10, 64)
		count, _ := strconv.ParseInt(pair[2], 10, 64)
		bytes += size * count << 10
	}
	return bytes
}

func parseCublasWorkspace(text string) (func(*Case), error) {
	const most = 1 << 40
	if n := cublasBytes(text); text != "" && (!cublasWorkspace.MatchString(text) || n > most) {
		return nil, fmt.Errorf("%q is not KiB and how many, like :4096:8 or :16:8", text)
	}
	return func(c *Case) { c.CublasWorkspace = text }, nil
}

// rulesOf are a release's rules under what the case sets of its libraries.
func rulesOf(c Case, release *stack.Stack) trace.Rules {
	rules := release.Rules()
	if c.CublasWorkspace != "" {
		rules.Products.BLAS = trace.ByCapability{{Value: cublasBytes(c.CublasWorkspace)}}
	}
	return rules
}
