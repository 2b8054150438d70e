package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
	"github.com/vprof/vprof/profiler/device/nvml"
)

// doctorReport is the result of "vprof doctor".
type doctorReport struct {
	Schema string `json:"schema"`
	// BuiltWithCUDA reports whether this build of vprof can drive a GPU.
	BuiltWithCUDA bool `json:"built_with_cuda"`
	// Driver, NVML and CUDA are the versions found; empty for what is missing.
	Driver  string `json:"driver,omitempty"`
	CUDA    string `json:"cuda,omitempty"`
	NVML    string `json:"nvml,omitempty"`
	Library string `json:"library,omitempty"`
	// GPUs are the driver's GPUs, or NVML's without a working driver.
	GPUs []checkedGPU `json:"gpus"`
	// Settings are the defaults that the environment and settings files set.
	Settings []setting `json:"settings,omitempty"`
	// Problems are the reasons why a GPU cannot be used, with remedies.
	Problems []report.Warning `json:"problems"`

	// err is the reason why no GPU can be used; nil if one can.
	err error
}

type checkedGPU struct {
	Device            string `json:"device"`
	Name              string `json:"name"`
	UUID              string `json:"uuid,omitempty"`
	Capability        string `json:"compute_capability,omitempty"`
	Memory            int64  `json:"memory_bytes"`
	ContextBytes      int64  `json:"context_bytes,omitempty"`
	KernelBytes       int64  `json:"kernels_bytes,omitempty"`
	OtherProcessBytes int64  `json:"others_bytes"`
	Mode              string `json:"compute_mode,omitempty"`
	MIG               bool   `json:"mig,omitempty"`
	Usable            bool   `json:"usable"`
	// Simulated reports whether the driver has no real GPU.
	Simulated bool `json:"simulated,omitempty"`
}

func newDoctorCmd(a *app) *cobra.Command {
	out := output{app: a}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine's GPUs and report what is missing",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			d := examineMachine()
			set, err := findSettings()
			if err != nil {
				return err
			}
			for _, name := range slices.Sorted(maps.Keys(set)) {
				d.Settings = append(d.Settings, set[name])
			}
			return errors.Join(out.finish(d), d.err)
		},
	}
	return out.register(cmd)
}

func examineMachine() *doctorReport {
	d := &doctorReport{Schema: "vprof.doctor/v1", BuiltWithCUDA: cuda.Built}
	d.GPUs, d.Problems = []checkedGPU{}, []report.Warning{}
	listed := d.askNVML()
	s := cuda.Probe()
	d.Library = s.Library
	if s.CUDA > 0 {
		d.CUDA = fmt.Sprintf("%d.%d", s.CUDA/1000, s.CUDA%1000/10)
	}
	d.err = s.Err
	d.addProblem(s.Err)
	for _, b := range s.GPUs {
		d.addProblem(b.Err)
		d.GPUs = append(d.GPUs, checkedGPU{
			Device: b.Name, Name: b.GPU.Product, UUID: b.Identity.UUID, MIG: b.Identity.MIG,
			Capability: b.GPU.Capability.String(), Memory: b.GPU.Memory,
			ContextBytes: b.Baseline.Context, KernelBytes: b.Baseline.Kernels, OtherProcessBytes: b.Baseline.Others,
			Usable:    b.Err == nil,
			Simulated: b.Simulated,
		})
		if b.Simulated {
			d.Problems = append(d.Problems, report.Warning{
				What: b.Name + " is simulated: its driver runs no kernels",
				Hint: "runs on it count memory and measure nothing",
			})
		}
		for _, way := range b.Shared {
			d.Problems = append(d.Problems, report.Warning{What: way})
		}
		for _, n := range b.Neighbors {
			d.Problems = append(d.Problems, report.Warning{What: fmt.Sprintf("%s is also used by %v", b.Name, n)})
		}
	}
	if d.err == nil {
		d.err = firstUnusable(s.GPUs)
	}
	if len(s.GPUs) == 0 {
		d.GPUs = listed
	}
	return d
}

func firstUnusable(listed []cuda.ProbedGPU) error {
	if slices.ContainsFunc(listed, func(b cuda.ProbedGPU) bool { return b.Err == nil }) {
		return nil
	}
	if err := listed[0].Err; errors.As(err, new(*device.UnusableError)) {
		return err
	}
	return &device.UnusableError{Device: listed[0].Name, Reason: "it fails", Err: listed[0].Err}
}

// askNVML records the versions and returns NVML's GPUs.
func (d *doctorReport) askNVML() []checkedGPU {
	library, err := nvml.Open()
	if err != nil {
		if !errors.Is(err, nvml.ErrNotBuilt) { // which the driver's problem says, too
			d.Problems = append(d.Problems, report.Warning{What: "NVML: " + err.Error(), Hint: "libnvidia-ml.so.1 " +
				"belongs to the driver; without it other processes on a GPU are invisible"})
		}
		return []checkedGPU{}
	}
	defer library.Close()
	if v, err := library.Versions(); err == nil {
		d.Driver, d.NVML = v.Driver, v.NVML
	}
	listed, err := library.GPUs()
	if err != nil {
		d.Problems = append(d.Problems, report.Warning{What: "NVML: " + err.Error()})
	}
	gpus := []checkedGPU{}
	for _, b := range listed {
		g := checkedGPU{Device: fmt.Sprintf("GPU %d", b.Index), Name: b.Name, Mode: string(b.Mode), MIG: b.MIG}
		if m, err := b.Memory(); err == nil {
			g.Memory, g.OtherProcessBytes = m.Total-m.Reserved, m.Used
		}
		if slices, err := b.Slices(); err == nil && b.MIG && len(slices) == 0 {
			d.Problems = append(d.Problems, report.Warning{
				What: g.Device + " is in MIG mode and has no slices",
				Hint: fmt.Sprintf("make one (nvidia-smi mig -i %d -cgi 0 -C) or turn the mode off (nvidia-smi -i %d "+
					"-mig 0)", b.Index, b.Index),
			})
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// addProblem records an error and its remedy.
func (d *doctorReport) addProblem(err error) {
	var u *device.UnusableError
	switch {
	case err == nil:
	case errors.As(err, &u):
		what := *u
		what.Remedy = ""
		d.Problems = append(d.Problems, report.Warning{What: what.Error(), Hint: u.Remedy})
	default:
		d.Problems = append(d.Problems, report.Warning{What: err.Error()})
	}
}

// Sheets returns the tables to print, for [report.Document].
func (d *doctorReport) Sheets() []report.Sheet {
	yesNo := map[bool]string{true: "yes", false: "no"}
	versions := report.Sheet{Columns: report.Columns("what | found")}
	versions.Row("vprof with CUDA", yesNo[d.BuiltWithCUDA])
	for _, v := range [][2]string{
		{"driver", d.Driver}, {"CUDA of the driver", d.CUDA}, {"libcuda", d.Library}, {"NVML", d.NVML},
	} {
		versions.Row(v[0], cmp.Or(v[1], "not found"))
	}
	gpus := report.Sheet{
		Columns: report.Columns("gpu | name | compute> | memory> | context> | kernels> | others> | usable"),
	}
	for _, g := range d.GPUs {
		gpus.Row(g.Device, g.Name, g.Capability, g.Memory, g.ContextBytes, g.KernelBytes, g.OtherProcessBytes,
			yesNo[g.Usable])
	}
	for _, p := range d.Problems {
		gpus.Notes.Add("%s", p)
	}
	if len(gpus.Notes) == 0 {
		gpus.Notes.Add("nothing is missing.")
	}
	gpus.Notes.If(d.err != nil, "plan, fit, smoke, sweep and time need none of this: they simulate the GPU.")
	defaults := report.Sheet{Title: "Settings", Columns: report.Columns("setting | value | from")}
	for _, set := range d.Settings {
		defaults.Row(set.Name, set.Value, set.Source)
	}
	if len(d.Settings) == 0 {
		return []report.Sheet{versions, gpus}
	}
	return []report.Sheet{versions, gpus, defaults}
}

// Data returns the values that JSON output holds, for [report.Document].
func (d *doctorReport) Data() report.Data {
	columns := "device name compute_capability memory_bytes context_bytes kernels_bytes others_bytes usable"
	return report.Data{Lines: []any{d}, CSV: report.Rows(columns, d.GPUs)}
}
