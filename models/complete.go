package models

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/vprof/vprof/profiler/stack"
)

// DefaultCase returns the model's default case by the release of PyTorch that verbs plan for where none is named: the
// newest, or the one that made a recording.
func (m Model) DefaultCase() Case {
	c := m.Default
	c.Model = m.Name
	if !m.Recorded {
		c.Torch = stack.Default().Release()
	}
	return c
}

// Complete fills the fields that c leaves open (stage, batch, accumulation, settings) with the model's defaults and
// checks the others. In precision, weights, checkpointing and optimizer, "" and false are already choices and stay. The
// error is a [*CaseError].
func (m Model) Complete(c Case) (Case, error) {
	c = m.withDefaults(c)
	if field, reason := c.checkFields(); reason != "" {
		return c, c.Wrong(field, "%s", reason)
	}
	c.Stack = m.stackOf(c)
	var err error
	if c.Settings, err = m.settings(c.Settings); err != nil {
		return c, err
	}
	if field, reason := newConflictInput(&m, &c).firstConflict(conflicts); reason != "" {
		return c, c.Wrong(field, "%s", reason)
	}
	return c, m.check(c)
}

// check returns an error if the model cannot train a complete case with its present batch, rank and micro-batches.
func (m Model) check(c Case) error {
	if field := m.changedNote(c); field != "" {
		return c.Wrong(field, "the steps of a recorded run are what they are; record the run again with this changed "+
			"(other GPUs and allocator settings need no new recording)")
	}
	if err := CheckBatch(c.Batch); err != nil {
		return c.Wrong("batch", "%v", err)
	}
	if m.Check != nil {
		return m.Check(c)
	}
	return nil
}

// withDefaults returns a case with the model's defaults where it leaves something open.
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

// changedNote returns the key of the first field in which a completed case differs from the only case of a recorded
// run; empty if none does. Allocator settings may differ.
func (m Model) changedNote(c Case) string {
	if !m.Recorded {
		return ""
	}
	return FirstDifference(c, m.withDefaults(m.Default), func(key string, asked, recorded json.RawMessage) bool {
		return key == "alloc_conf" || bytes.Equal(asked, recorded)
	})
}

// MaxBatch is the largest batch size that is accepted; a larger one is taken for a mistake.
const MaxBatch = 1 << 20

// maxAccumulated limits the micro-batches that one optimizer step can have in a recording.
const maxAccumulated = 1024

// CheckBatch returns an error if n samples are no batch that anybody trains with: from a flag or a file.
func CheckBatch(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("%d is not a batch size; the smallest is 1", n)
	case n > MaxBatch:
		return fmt.Errorf("%d is above the largest batch size, %d", n, MaxBatch)
	}
	return nil
}

// CheckAccumulate returns an error if a step of n micro-batches is not recorded.
func CheckAccumulate(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("%d micro-batches: need 1 or more", n)
	case n > maxAccumulated:
		return fmt.Errorf("%d micro-batches are too many to record; all after the second allocate the "+
			"same, so use %d", n, maxAccumulated)
	}
	return nil
}

// Canonical returns a complete case as in files: without settings that equal the model's defaults. Two ways to write
// the same case then give the same result.
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

// maxHeldBytes is the largest accepted data set or network beside the model, in bytes: more than any GPU holds.
const maxHeldBytes = 1 << 44

// libraries say on which packages beside PyTorch a step depends.
var libraries = map[string]func(m Model, c Case) bool{
	"transformers": func(m Model, _ Case) bool { return m.Transformers },
	"trl": func(m Model, c Case) bool {
		o := c.Objective
		return m.Transformers && (c.Settings["trl-loss"] > 0 || !o.IsZero() && !o.Distills() && o.LikeTrainer == "")
	},
	"peft":         func(_ Model, c Case) bool { return c.LoRA != nil },
	"bitsandbytes": func(_ Model, c Case) bool { return c.Quantize != "" },
	"liger-kernel": func(_ Model, c Case) bool { return c.Liger },
	"deepspeed":    func(_ Model, c Case) bool { return c.Strategy != nil && c.Strategy.Engine != "" },
	"accelerate":   func(_ Model, c Case) bool { return c.Strategy != nil },
	"cuda":         func(Model, Case) bool { return true },
	"cudnn":        func(Model, Case) bool { return true },
}

// stackOf returns the releases of a case that affect its memory. For a model from a configuration, releases that are
// not named are the newest known.
func (m Model) stackOf(c Case) stack.Libraries {
	all := maps.Clone(c.Stack)
	maps.DeleteFunc(all, func(name, _ string) bool {
		matters, known := libraries[name]
		return known && !matters(m, c)
	})
	for name, matters := range libraries {
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
