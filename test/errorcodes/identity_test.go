package errorcodes

import (
	"context"
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/rpc/identity"
)

type identityWorld struct {
	context.Context
}

func (w identityWorld) server(options identity.Options) *identity.Server {
	return identity.New(options)
}

func identityRows() []row[identityWorld] {
	named := identity.Options{DriverName: "disk.csi.azure.com", Version: "1"}
	return []row[identityWorld]{
		{"GetPluginInfo", "at any time", codes.OK, func(w identityWorld) error {
			_, err := w.server(named).GetPluginInfo(w, &csi.GetPluginInfoRequest{})
			return err
		}},
		{"GetPluginInfo", "the driver was built without a name or a version", codes.Unavailable, func(w identityWorld) error {
			_, err := w.server(identity.Options{}).GetPluginInfo(w, &csi.GetPluginInfoRequest{})
			return err
		}},
		{"GetPluginCapabilities", "at any time", codes.OK, func(w identityWorld) error {
			_, err := w.server(named).GetPluginCapabilities(w, &csi.GetPluginCapabilitiesRequest{})
			return err
		}},
		{"Probe", "at any time; the answer reports whether the plug-in is ready", codes.OK, func(w identityWorld) error {
			unready := named
			unready.Ready = func(context.Context) error { return errors.New("not yet") }
			response, err := w.server(unready).Probe(w, &csi.ProbeRequest{})
			if response.GetReady().GetValue() {
				return errors.New("it says that it is ready")
			}
			return err
		}},
	}
}

func TestIdentityCodes(t *testing.T) {
	run(t, identityRows(), func(t *testing.T) identityWorld { return identityWorld{t.Context()} })
}
