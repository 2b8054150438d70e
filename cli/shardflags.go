package cli

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

// shardFlags choose the part of the work.
type shardFlags struct {
	shard, shardFolder string
	flags              *pflag.FlagSet
	// refusedFlags are flags that need all of the work, and are refused with --shard.
	refusedFlags []string
	part         shard.Part
}

func (f *shardFlags) register(flags *pflag.FlagSet, whole ...string) {
	f.flags, f.refusedFlags = flags, slices.Concat(whole, []string{"export", "format"})
	flags.StringVar(&f.shard, "shard", "",
		"run one `part` of the work, like 0/4 (i/n, i from 0); auto reads it from a job array (see vprof fleet merge)")
	flags.StringVar(&f.shardFolder, "into", "shards", "`folder` that --shard writes its result to")
}

// open parses the flags; false without --shard. Results of a shard are not printed.
func (f *shardFlags) open() (bool, error) {
	if f.shard == "" {
		return false, refuseFlags(f.flags, "--%s works only with --shard i/n; add it, or leave --%[1]s out", "into")
	}
	if err := refuseFlags(f.flags, "--%s needs all results, and --shard computes a part of them; leave it out, and "+
		"give it to vprof fleet merge (--export, --format)", f.refusedFlags...); err != nil {
		return false, err
	}
	return f.parse()
}

// runShardIfSet runs a part of the work with --shard. It reports whether there is nothing else to do.
func (f *shardFlags) runShardIfSet(do func() error) (done bool, err error) {
	done, err = f.open()
	if done && err == nil {
		err = do()
	}
	return done || err != nil, err
}

// parse parses --shard; false if it is not given.
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

// A shardWork does units from <= unit < to. It returns the number of finished units and their result. partial is the
// unfinished result of an earlier process; keep saves one for a later process.
type shardWork func(ctx context.Context, from, to int, partial json.RawMessage, keep func(any) error) (units int,
	result any, err error)

// run processes the shard's part of the work. common is the data about the whole work.
func (f *shardFlags) run(ctx context.Context, a *app, p shard.Plan, common any, do shardWork) (err error) {
	p.Tool = vprofTool()
	h := shard.Header{
		Plan: p, Shard: f.part.Index, ShardCount: f.part.ShardCount, Started: a.now().UTC().Truncate(time.Second),
		Host: hostName(),
	}
	if h.Common, err = json.Marshal(common); err != nil {
		return err
	}
	s, err := shard.Open(f.shardFolder, h)
	if err != nil {
		return err
	}
	if s == nil {
		printable.Fprintf(a.stdout, "shard %v was done before, in %s\n", f.part, f.shardFolder)
		return nil
	}
	for {
		from, partial := s.Next()
		if from == s.End() {
			break
		}
		units, result, err := do(ctx, from, s.End(), partial, s.PutPartial)
		if err == nil {
			err = s.Put(units, result)
		}
		if err != nil {
			// The contents of the file stay, even if this fails.
			return errors.Join(err, s.Fail(err, int(codeOf(err)), h.Host, a.now().UTC().Truncate(time.Second)))
		}
	}
	if err := s.Finish(); err != nil {
		return err
	}
	from, to := f.part.Range(p.Units)
	printable.Fprintf(a.stdout, "shard %v is done: %d of %d units, in %s\n", f.part, to-from, p.Units, f.shardFolder)
	return nil
}

// newShardPlan returns the plan of some work, with everything that its results depend on.
func newShardPlan(verb string, units int, work any) (shard.Plan, error) {
	hash, err := shard.Hash(work)
	return shard.Plan{Verb: verb, Hash: hash, Units: units}, err
}
