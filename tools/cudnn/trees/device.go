package main

import (
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
	"github.com/vprof/vprof/tools/cudnn/vectors"
)

// deviceKernels are kernels for few channels in half precision. They need no workspace, and cuDNN proposes them only on
// a real GPU, so answers without a GPU do not contain them. Records of real GPUs show where they run.
var deviceKernels = []string{
	"wgrad2d_shmem_tiling", "dgrad2d_c1_k1_nchw_shmem_tiling", "conv2d_c1_k1_nchw_shmem_tiling", "conv1D_NCHW_wgrad",
}

// onDevices writes the rules that tell where deviceKernels run, for all architectures and operations. path is the file
// of records.
func (f *fitter) onDevices(path string) error {
	records, err := vectors.Read(path)
	if err != nil {
		return err
	}
	type part struct {
		generation int
		operation  cudnn.Direction
	}
	cases, class := map[part][]labeled{}, map[part][]int32{}
	for i := range records {
		v := &records[i]
		if v.Config.DType == cudnn.F32 || v.Config.Layout != cudnn.Contiguous {
			continue
		}
		for d := cudnn.Forward; d <= cudnn.GradWeight; d++ {
			q := query.NewQuestion(v.Config, d)
			p := part{cudnn.Generation(v.GPU), q.Operation}
			cases[p] = append(cases[p], labeled{study: cudnn.NewStudy(q.Config, q.Operation, v.GPU)})
			class[p] = append(class[p], int32(cudnn.DeviceVote(slices.ContainsFunc(v.Kernels[d], isDeviceKernel))))
		}
	}
	for p, cases := range cases {
		samples := make([]int32, len(cases))
		for i := range samples {
			samples[i] = int32(i)
		}
		trees := tabulate(cases).plant(f.trees, f.support, samples, class[p], 2)
		rules := forest.Append(nil, forest.TrainedForest{Classes: []string{"as asked", "on devices"}, Trees: trees})
		name := cudnn.DeviceRuleFile(p.generation, cases[0].study.Operation())
		log.Printf("%s: %d cases, %d bytes", name, len(cases), len(rules))
		if err := os.WriteFile(filepath.Join(f.dir, name), rules, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func isDeviceKernel(name string) bool {
	return slices.ContainsFunc(deviceKernels, func(k string) bool { return strings.Contains(name, k) })
}
