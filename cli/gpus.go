package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/device"
)

type gpuEntry struct {
	Name          string    `json:"name"`
	Product       string    `json:"product"`
	Aliases       []string  `json:"aliases"`
	Generation    string    `json:"generation"`
	Capability    string    `json:"compute_capability"`
	SMs           int       `json:"sms"`
	Memory        int64     `json:"memory_bytes"`
	Bandwidth     float64   `json:"bandwidth_bytes_per_second"`
	FLOPS         peakRates `json:"flops"`
	ContextBytes  int64     `json:"context_bytes"`
	LibraryBytes  int64     `json:"libraries_bytes,omitempty"`
	ContextSource string    `json:"context_source"`
	Source        string    `json:"source"`
}

// peakRates are FLOP/s by precision; zero for precisions without units on the GPU.
type peakRates struct {
	FP32 float64 `json:"fp32"`
	TF32 float64 `json:"tf32"`
	FP16 float64 `json:"fp16"`
	BF16 float64 `json:"bf16"`
	FP64 float64 `json:"fp64"`
}

// gpuList is the result of "vprof gpus".
type gpuList struct {
	Schema string     `json:"schema"`
	GPUs   []gpuEntry `json:"gpus"`
}

func newGPUsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "gpus [TEXT]", Short: "List the GPUs that vprof can simulate", Args: argCount(0, 1, "search for one text"),
	}
	return (&output{app: a}).showDocument(cmd, func(args []string) (report.Document, error) {
		list := gpuList{Schema: "vprof.gpus/v1"}
		text := strings.Join(args, "")
		begins := regexp.MustCompile(`(?i)(^|[^a-z])` + regexp.QuoteMeta(text)) // "m3" is no part of HBM3
		for _, g := range device.Catalog() {
			names := append([]string{g.Name, g.Product, g.Generation}, g.Aliases...)
			if !begins.MatchString(strings.Join(names, " ")) {
				continue
			}
			list.GPUs = append(list.GPUs, gpuEntry{
				Name: g.Name, Product: g.Product, Aliases: g.Aliases, Generation: g.Generation,
				Capability: g.Capability.String(),
				SMs:        g.SMs, Memory: g.Memory, Bandwidth: g.Bandwidth, FLOPS: peakRates(g.Peak),
				ContextBytes: g.Context, LibraryBytes: g.Libraries, ContextSource: g.ContextSource, Source: g.Source,
			})
		}
		if len(list.GPUs) == 0 {
			return nil, usagef("no GPU has %q in its name; list all with \"vprof gpus\", or describe another NVIDIA "+
				"GPU in a file (--gpu-spec)", text)
		}
		return list, nil
	})
}

// Sheets returns the tables to print, for [report.Document].
func (l gpuList) Sheets() []report.Sheet {
	s := report.Sheet{Columns: report.Columns("gpu | product | generation | cc> | SMs> | memory GiB> | " +
		"context MiB> | GB/s> | fp32 TFLOP/s> | 16-bit TFLOP/s>")}
	for _, g := range l.GPUs {
		s.Row(g.Name, g.Product, g.Generation, g.Capability, g.SMs,
			fmt.Sprintf("%.2f", float64(g.Memory)/bytesize.GiB), int(g.ContextBytes/bytesize.MiB),
			fmt.Sprintf("%.0f", g.Bandwidth/1e9), formatTera(g.FLOPS.FP32), formatTera(max(g.FLOPS.FP16, g.FLOPS.BF16)))
	}
	s.Notes.Add("context: of a process of PyTorch, with its libraries' kernels where runs showed them, else bare. " +
		"memory: as the driver reports it. 16-bit: tensor cores, dense.")
	return []report.Sheet{s}
}

func formatTera(rate float64) string {
	if rate == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", rate/1e12)
}

// Data returns the values that JSON output holds, for [report.Document].
func (l gpuList) Data() report.Data {
	return report.Data{Lines: report.AsLines(l.GPUs), CSV: report.Rows(`name product generation compute_capability sms
		memory_bytes context_bytes bandwidth_bytes_per_second`, l.GPUs)}
}
