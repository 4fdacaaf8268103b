// Package config holds one typed configuration for each subcommand of the
// driver, and the one way in which they are filled: defaults, then the file
// named by --config, then the environment, then the command line, each over the one before.
//
// The environment variable of a flag is its name in upper case with AZUREDISK_
// before it: --heartbeat-interval is AZUREDISK_HEARTBEAT_INTERVAL. The file is YAML
// whose keys are the flags' names. This is the only package that reads the environment.
//
// Validate methods return all faults at once, each naming the setting, its value and what is
// allowed.
package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

const envPrefix = "AZUREDISK_"

// DriverName is the CSI driver's name, the same as the V1 driver's, which it replaces.
const DriverName = "disk.csi.azure.com"

// Fill sets the flags that the command line left alone from the environment
// (lookup) and from the YAML file at path ("" for none). It returns every fault found.
func Fill(flags *pflag.FlagSet, lookup func(string) (string, bool), path string) error {
	file, err := readFile(path)
	if err != nil {
		return err
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(file)) {
		if flags.Lookup(name) == nil {
			faults = append(faults, fmt.Errorf("configuration file %s: unknown setting %q", path, name))
		}
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || flag.Name == "help" {
			return
		}
		value, source := file[flag.Name], "configuration file "+path
		_, found := file[flag.Name]
		env := envName(flag.Name)
		if v, ok := lookup(env); ok {
			value, source, found = v, "environment variable "+env, true
		}
		if !found {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil {
			faults = append(faults, fmt.Errorf("%s: setting %q: %w", source, flag.Name, err))
		}
	})
	return errors.Join(faults...)
}

// Environment looks a variable up in the environment of the process.
func Environment(name string) (string, bool) { return os.LookupEnv(name) }

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(flag))
}

func readFile(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration file: %w", err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(raw, &values); err != nil {
		return nil, fmt.Errorf("parse configuration file %s: %w", path, err)
	}
	settings := make(map[string]string, len(values))
	for key, value := range values {
		settings[key] = fmt.Sprint(value)
	}
	return settings, nil
}
