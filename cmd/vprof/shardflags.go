package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/shard"
	"github.com/vprof/vprof/internal/printable"
)

// shardFlags say which part of the work to do.
type shardFlags struct {
	shard, into string
	flags       *pflag.FlagSet
	// whole are flags that need the whole work: they cannot be combined with --shard.
	whole []string
	part  shard.Part
}

func (f *shardFlags) register(flags *pflag.FlagSet, whole ...string) {
	f.flags, f.whole = flags, slices.Concat(whole, []string{"export", "format"})
	flags.StringVar(&f.shard, "shard", "",
		"do `part` i/n of the work, i from 0, or auto in a job array (see vprof fleet merge)")
	flags.StringVar(&f.into, "into", "shards", "`folder` for the result of --shard")
}

// open reads the flags; false without --shard. Results of a part are not printed.
func (f *shardFlags) open() (bool, error) {
	if f.shard == "" {
		return false, without(f.flags, "--%s is the folder of --shard i/n, which is missing", "into")
	}
	if err := without(f.flags, "--%s needs the whole, and --shard does a part of it; leave one out (vprof fleet merge "+
		"has --export and --format)", f.whole...); err != nil {
		return false, err
	}
	return f.parse()
}

// parse reads which part it is; false without --shard.
func (f *shardFlags) parse() (bool, error) {
	if f.shard == "" {
		return false, nil
	}
	var err error
	if f.part, err = shard.Parse(f.shard, os.Getenv); err != nil {
		return false, usagef("--shard: %w", err)
	}
	return true, nil
}

// A shardWork does units of work, beginning with from and before to, and returns how many it did and their
// result. Partial is the unfinished result that an earlier process has saved; keep saves one for a later process.
type shardWork func(ctx context.Context, from, to int, partial json.RawMessage, keep func(any) error) (units int,
	result any, err error)

// run does the part of the work. Common is what is said of the whole.
func (f *shardFlags) run(ctx context.Context, a *app, p shard.Plan, common any, do shardWork) (err error) {
	p.Tool = tool()
	h := shard.Header{
		Plan: p, Shard: f.part.Index, Of: f.part.Of, Started: a.now().UTC().Truncate(time.Second),
		Host: hostName(),
	}
	if h.Common, err = json.Marshal(common); err != nil {
		return err
	}
	s, err := shard.Open(f.into, h)
	if err != nil {
		return err
	}
	if s == nil {
		printable.Fprintf(a.stdout, "shard %v is done already, in %s\n", f.part, f.into)
		return nil
	}
	for {
		from, partial := s.Next()
		if from == s.To() {
			break
		}
		units, result, err := do(ctx, from, s.To(), partial, s.Keep)
		if err == nil {
			err = s.Put(units, result)
		}
		if err != nil {
			// What stands in the file by then stays, even if this cannot be noted.
			return errors.Join(err, s.Fail(err, int(codeOf(err)), h.Host, a.now().UTC().Truncate(time.Second)))
		}
	}
	if err := s.Finish(); err != nil {
		return err
	}
	from, to := f.part.Range(p.Units)
	printable.Fprintf(a.stdout, "shard %v is done: %d of %d units, in %s\n", f.part, to-from, p.Units, f.into)
	return nil
}

// planOf returns the plan of some work, which has all that its results depend on.
func planOf(verb string, units int, work any) (shard.Plan, error) {
	hash, err := shard.Hash(work)
	return shard.Plan{Verb: verb, Hash: hash, Units: units}, err
}
