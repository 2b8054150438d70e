package models

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/vprof/vprof/profiler/stack"
)

// DefaultCase returns the model's default case. Its PyTorch release is the one that recorded the model or, without
// one, the newest.
func (m Model) DefaultCase() Case {
	c := m.Default
	c.Model = m.Name
	if !m.Recorded {
		c.Torch = stack.Default().Release()
	}
	return c
}

// Complete fills empty fields (stage, batch, accumulation, settings) with the model's defaults and checks all others.
// Empty precision, weights, checkpointing and optimizer are values of their own and stay. The error is a [*CaseError].
func (m Model) Complete(c Case) (Case, error) {
	c = m.withDefaults(c)
	if field, reason := c.checkFields(); reason != "" {
		return c, c.FieldError(field, "%s", reason)
	}
	c.Stack = m.librariesOf(c)
	var err error
	if c.Settings, err = m.completeSettings(c.Settings); err != nil {
		return c, err
	}
	if field, reason := newSubject(&m, &c).firstConflict(conflicts); reason != "" {
		return c, c.FieldError(field, "%s", reason)
	}
	return c, m.checkCase(c)
}

// checkCase returns an error if the model cannot train a complete case with another batch, rank or micro-batches.
func (m Model) checkCase(c Case) error {
	if field := m.firstChangedKey(c); field != "" {
		return c.FieldError(field, "vprof cannot change this value of a recorded run; record the run again with the "+
			"new value (only the GPU and the allocator settings can change without a new recording)")
	}
	if err := CheckBatch(c.Batch); err != nil {
		return c.FieldError("batch", "%v", err)
	}
	if m.Check != nil {
		return m.Check(c)
	}
	return nil
}

func (m Model) withDefaults(c Case) Case {
	d := m.Default
	c.Model, c.ConfigHash = m.Name, m.Description.Hash()
	if c.LoRA != nil && c.LoRA.NoTowers && !m.HasTowers {
		l := *c.LoRA
		l.NoTowers, c.LoRA = false, &l
	}
	c.Task, c.Stage, c.Loss = cmp.Or(c.Task, d.Task), cmp.Or(c.Stage, d.Stage), cmp.Or(c.Loss, d.Loss)
	c.Batch, c.Accumulate = cmp.Or(c.Batch, d.Batch), cmp.Or(c.Accumulate, max(1, d.Accumulate))
	if c.Blocks = cmp.Or(c.Blocks, d.Blocks); !c.Checkpointing {
		c.Blocks = ""
	}
	return c
}

// firstChangedKey compares a completed case with the only case of a recorded run. It returns the JSON key of the first
// field that differs, empty if none does. Allocator settings may differ.
func (m Model) firstChangedKey(c Case) string {
	if !m.Recorded {
		return ""
	}
	return FirstDifferingKey(c, m.withDefaults(m.Default), func(key string, asked, recorded json.RawMessage) bool {
		return key == "alloc_conf" || bytes.Equal(asked, recorded)
	})
}

// MaxBatch is the largest accepted batch size; a larger number is most likely a mistake.
const MaxBatch = 1 << 20

// maxAccumulated is the largest number of micro-batches of one optimizer step that vprof records.
const maxAccumulated = 1024

// CheckBatch returns an error if n is not between 1 and [MaxBatch].
func CheckBatch(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("batch size %d: need at least 1", n)
	case n > MaxBatch:
		return fmt.Errorf("batch size %d is above the largest that vprof accepts, %d", n, MaxBatch)
	}
	return nil
}

// CheckAccumulate returns an error if vprof cannot record an optimizer step of n micro-batches.
func CheckAccumulate(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("%d accumulation steps (micro-batches): need at least 1", n)
	case n > maxAccumulated:
		return fmt.Errorf("%d accumulation steps (micro-batches) are too many to record; all after the second "+
			"allocate the same memory, so use %d", n, maxAccumulated)
	}
	return nil
}

// Canonical returns a complete case without the settings that equal the model's defaults, as files hold it. Equal
// cases then have equal JSON.
func (m Model) Canonical(c Case) Case {
	own := Settings{}
	for _, s := range m.Settings {
		if v, given := c.Settings[s.Name]; given && v != s.Default {
			own[s.Name] = v
		}
	}
	if c.Settings = own; len(own) == 0 {
		c.Settings = nil
	}
	return c
}

// maxHeldBytes limits the bytes of a data set or of further tensors on the GPU to more than any GPU has.
const maxHeldBytes = 1 << 44

// dependsOnLibrary reports for each library besides PyTorch whether a case depends on its release.
var dependsOnLibrary = map[string]func(m Model, c Case) bool{
	"transformers": func(m Model, _ Case) bool { return m.IsTransformers },
	"trl": func(m Model, c Case) bool {
		o := c.Objective
		return m.IsTransformers && (c.Settings["trl-loss"] > 0 || !o.IsZero() && !o.Distills() && o.LikeTrainer == "")
	},
	"peft":         func(_ Model, c Case) bool { return c.LoRA != nil },
	"bitsandbytes": func(_ Model, c Case) bool { return c.Quantize != "" },
	"liger-kernel": func(_ Model, c Case) bool { return c.Liger },
	"deepspeed":    func(_ Model, c Case) bool { return c.Strategy != nil && c.Strategy.Engine != "" },
	"accelerate":   func(_ Model, c Case) bool { return c.Strategy != nil },
	"cuda":         func(Model, Case) bool { return true },
	"cudnn":        func(Model, Case) bool { return true },
}

// librariesOf returns the releases of the libraries that affect the case's memory. Releases that are not given are the
// newest known for a model that comes from a configuration.
func (m Model) librariesOf(c Case) stack.Libraries {
	all := maps.Clone(c.Stack)
	maps.DeleteFunc(all, func(name, _ string) bool {
		matters, known := dependsOnLibrary[name]
		return known && !matters(m, c)
	})
	for name, matters := range dependsOnLibrary {
		newest := stack.Newest(name)
		if newest != "" && m.Description.Text() != "" && all[name] == "" && matters(m, c) {
			if all == nil {
				all = stack.Libraries{}
			}
			all[name] = newest
		}
	}
	return all
}
