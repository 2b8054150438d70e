package models

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// cublasBuffers is a pair of a CUBLAS_WORKSPACE_CONFIG: KiB, and how many buffers of that size.
var cublasBuffers = regexp.MustCompile(`:(\d{1,9}):(\d{1,4})`)

// mostCublasPairs bounds the pairs, so that their sum is no longer than an int64.
const mostCublasPairs = 8

// cublasBytes is the workspace that PyTorch allocates for a CUBLAS_WORKSPACE_CONFIG, in bytes: the sum of all buffers
// (parseChosenWorkspaceSize in ATen/cuda/CublasHandlePool.cpp).
func cublasBytes(config string) (bytes int64) {
	for _, pair := range cublasBuffers.FindAllStringSubmatch(config, mostCublasPairs) {
		size, _ := strconv.ParseInt(pair[1], 10, 64)
		count, _ := strconv.ParseInt(pair[2], 10, 64)
		bytes += size * count << 10
	}
	return bytes
}

func parseCublasWorkspace(text string) (func(*Case), error) {
	const most = 1 << 40
	pairs := cublasBuffers.FindAllString(text, mostCublasPairs)
	if strings.Join(pairs, "") != text || cublasBytes(text) > most {
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
