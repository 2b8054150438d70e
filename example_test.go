package vprof_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/vprof/vprof"
)

// How much memory do these batch sizes need? The upper end of the estimate is the number to plan by.
func ExamplePlan() {
	plan, err := vprof.Plan(context.Background(), vprof.Request{
		Model: "gpt2", GPU: []string{"rtx-3060", "rtx-4090"}, Batch: []int{4, 16}, SeqLen: 1024, AMP: "bf16",
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range plan.Points {
		fmt.Printf("%d on %s: %s, at most %.1f GiB\n", p.Batch, p.GPU, p.Reason, float64(p.Upper)/(1<<30))
	}
	// Output:
	// 4 on rtx-3060: fits, at most 9.3 GiB
	// 16 on rtx-3060: does not fit, at most 30.8 GiB
	// 4 on rtx-4090: fits, at most 9.5 GiB
	// 16 on rtx-4090: does not fit, at most 31.0 GiB
}

// Which batch is the largest safe one?
func ExampleFit() {
	fit, err := vprof.Fit(context.Background(), vprof.Request{
		Model: "resnet50", GPU: []string{"t4"}, AMP: "fp16", Checkpointing: "false",
	})
	if err != nil {
		log.Fatal(err)
	}
	if best, ok := fit.Overall(fit.Devices[0].Name); ok {
		fmt.Println("batch", best.Largest)
	}
	// Output: batch 232
}

// In a test of a training project: fail if the training would run out of memory anywhere.
func ExampleSmoke() {
	smoke, err := vprof.Smoke(context.Background(), vprof.Request{
		Model: "gpt2", GPU: []string{"rtx-3060"}, Batch: []int{64},
	})
	if err != nil {
		log.Fatal(err) // t.Fatal in a test
	}
	if !smoke.Safe {
		fmt.Println("not safe; the largest safe batch is", smoke.LargestBatch)
	}
	// Output: not safe; the largest safe batch is 3
}

// A config.json of transformers describes a model; here it is fine-tuned with adapters. A trainer's file goes into
// Files.
func ExamplePlan_config() {
	plan, err := vprof.Plan(context.Background(), vprof.Request{
		Model: "hf:models/hfconfig/testdata/configs/qwen2-0.5b/config.json", GPU: []string{"t4"}, Batch: []int{1},
		SeqLen: 1024, AMP: "fp16", LoRA: "r=8,target=all-linear", Checkpointing: "reentrant",
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range plan.Report.Points[0].Estimate.Components {
		if c.Bytes > 100<<20 {
			fmt.Printf("%s: %d MiB\n", c.Name, c.Bytes>>20)
		}
	}
	// Output:
	// weights: 966 MiB
	// activations: 940 MiB
	// temporaries: 1485 MiB
	// allocator slack: 744 MiB
	// context: 141 MiB
}

// Eight GPUs share a model. Byte counts are for each GPU.
func ExamplePlan_severalGPUs() {
	plan, err := vprof.Plan(context.Background(), vprof.Request{
		Model: "gpt2-xl", GPU: []string{"a100-80"}, GPUs: 8, Strategy: "fsdp2:mp=bf16", Batch: []int{4},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range plan.Points {
		fmt.Printf("%d GPUs, batch %d on each: %s\n", p.GPUs, p.Batch, p.Reason)
	}
	// Output: 8 GPUs, batch 4 on each: fits
}

// An error of the request says what is wrong with it.
func ExampleInputError() {
	_, err := vprof.Plan(context.Background(), vprof.Request{Model: "resnet81"})
	var wrong *vprof.InputError
	fmt.Println(errors.As(err, &wrong))
	fmt.Println(err)
	// Output:
	// true
	// unknown model "resnet81"; near it: resnet18, resnet34, resnet50 (list: vprof models; for others: vprof run, vprof capture)
}
