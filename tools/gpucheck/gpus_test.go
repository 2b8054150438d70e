//go:build cuda && linux && cgo

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/fakecuda"
	"github.com/vprof/vprof/tools/sample"
)

// built is the folder of the CUDA binary, built when a test needs it; empty before.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// vprof returns the path of the CUDA binary.
func vprof(t *testing.T) string {
	if built == "" {
		dir, err := os.MkdirTemp("", "gpucheck")
		require.NoError(t, err)
		out, err := exec.Command("go", "build", "-tags", "cuda", "-o", filepath.Join(dir, "vprof"),
			"github.com/vprof/vprof/cmd/vprof").CombinedOutput()
		require.NoError(t, err, "%s", out)
		built = dir
	}
	return filepath.Join(built, "vprof")
}

// on returns a check of a simulated machine, with the real vprof and with benchmark results that any GPU reaches.
func on(t *testing.T, setup fakecuda.Setup) (*check, *fakecuda.Driver) {
	driver := setup.Driver(t)
	for _, variable := range driver.Env {
		key, value, _ := strings.Cut(variable, "=")
		t.Setenv(key, value)
	}
	bin := t.TempDir()
	require.NoError(t, os.Symlink(vprof(t), filepath.Join(bin, "vprof")))
	lines := []string{"PASS"}
	for kernel := range shares(0) {
		lines = append(lines, "BenchmarkReal/"+kernel+"-16 50 1397621 ns/op 95 %peak 1500 GB/s")
	}
	tests := "#!/bin/sh\ncat <<END\n" + strings.Join(lines, "\n") + "\nEND\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "cuda.test"), []byte(tests), 0o700))
	return &check{bin: bin, out: filepath.Join(t.TempDir(), "out"), screen: &bytes.Buffer{}}, driver
}

func requireFree(t *testing.T, driver *fakecuda.Driver) {
	s := driver.Stats(t)
	require.Empty(t, driver.Violations(t))
	require.Zero(t, s.Alive(), "%+v", s)
	require.Zero(t, s.Used)
}

// Every step runs on every size of GPU, and a healthy GPU passes.
func TestEverySizeOfGPUIsChecked(t *testing.T) {
	names := sample.OfSlow([]string{
		"rtx-4060", "rtx-3080", "rtx-3060", "a100-80-mig-1g.10gb", "rtx-4090", "l40s", "a100-80", "rtx-5060-ti",
		"a100-40-mig-1g.5gb",
	})
	if !sample.All() {
		names = names[:1]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			gpu, err := device.Lookup(name)
			require.NoError(t, err)
			setup := fakecuda.Genuine(gpu)
			setup.Quiet = true
			setup.GPUs[0].Module = 20 << 20
			if strings.HasPrefix(name, "rtx") {
				setup.GPUs[0].Display = true
			}
			if strings.Contains(gpu.Product, "MIG") {
				name, _, _ := strings.Cut(gpu.Name, "-mig")
				whole, err := device.Lookup(name)
				require.NoError(t, err)
				setup.GPUs[0].MIG = fakecuda.Slice
				setup.GPUs = append([]fakecuda.GPU{{GPU: whole, MIG: fakecuda.Sliced}}, setup.GPUs...)
			}
			c, driver := on(t, setup)
			err = c.run(t.Context())
			require.FileExists(t, c.out+".tar.gz")
			for _, s := range c.result.Steps {
				require.Zero(t, s.Exit, "%s: %s", s.Name, c.screen)
			}
			// The sweep's time depends on the machine that runs the test.
			for i := range c.result.Figures {
				if f := &c.result.Figures[i]; f.Name == "time of the sweep" {
					f.Value = min(f.Value, f.AtMost)
				}
			}
			if err != nil {
				err = c.result.judge()
			}
			require.NoError(t, err, "%s", c.screen)
			require.Equal(t, healthy, c.result.Verdict)
			require.False(t, c.result.Simulated)
			requireFree(t, driver)
		})
	}
}

// A check that is interrupted or hangs frees the GPU.
func TestAnInterruptLeavesTheGPUFree(t *testing.T) {
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(t, err)
	for _, limited := range []bool{false, true} {
		setup := fakecuda.Genuine(gpu)
		setup.Quiet = true
		c, driver := on(t, setup)
		ctx, cancel := context.WithCancel(t.Context())
		if limited {
			before := stepLimit
			stepLimit = 2 * time.Second
			defer func() { stepLimit = before }()
		} else {
			go func() {
				for driver.Stats(t).Segments == 0 && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
		}
		step := c.do(ctx, "sweep", filepath.Join(c.bin, "vprof"), "sweep", "--device", "cuda:0", "--model",
			"redimnet-b2", "--batch", "8", "--warm-up", "1000", "--repeat", "1000")
		_ = step // the folder is missing, which this test does not concern
		cancel()
		requireFree(t, driver)
		require.NotZero(t, c.result.Steps[0].Exit)
	}
}
