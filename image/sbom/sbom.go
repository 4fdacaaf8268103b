// Package sbom describes what an image is made of as an SPDX document: the packages of Debian and
// the Go modules of the driver.
package sbom

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/package-url/packageurl-go"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/azuredisk-csi/azuredisk/image/built"
	"github.com/azuredisk-csi/azuredisk/image/debian"
)

// MediaType is that of the document.
const MediaType = "application/spdx+json"

const unknown = "NOASSERTION"

// Subject is the image that is described.
type Subject struct {
	Name, Version string
	// Architecture is that of the image.
	Architecture string
	// Home is the URL of the project.
	Home    string
	Created time.Time
	// Packages are the packages that files of the image come from.
	Packages []debian.Package
	// Program is the driver, a Go program.
	Program []byte
}

// Document returns the SPDX document as JSON. The same subject gives the same bytes.
func Document(s Subject) ([]byte, error) {
	goVersion, modules, err := built.Modules(s.Program)
	if err != nil {
		return nil, err
	}
	root := spdxPackage("Image", s.Name, s.Version, "")
	root.PrimaryPackagePurpose, root.PackageLicenseDeclared, root.PackageHomePage = "CONTAINER", "Apache-2.0", s.Home
	doc := &v2_3.Document{
		SPDXVersion:       v2_3.Version,
		DataLicense:       v2_3.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      fmt.Sprintf("%s %s linux/%s", s.Name, s.Version, s.Architecture),
		DocumentNamespace: fmt.Sprintf("%s/sbom/%s/linux-%s", s.Home, s.Version, s.Architecture),
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{
				CreatorType: "Tool",
				Creator:     "azuredisk-image",
			}}, Created: s.Created.UTC().Format(time.RFC3339),
		},
	}
	add := func(p *v2_3.Package, parent, relationship string) {
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
			RefA:         common.MakeDocElementID("", parent),
			RefB:         common.MakeDocElementID("", string(p.PackageSPDXIdentifier)),
			Relationship: relationship,
		})
	}
	add(root, "DOCUMENT", common.TypeRelationshipDescribe)
	for _, p := range s.Packages {
		add(debianPackage(p, s.Architecture), "Image", common.TypeRelationshipContains)
	}
	add(goModule("stdlib", strings.TrimPrefix(goVersion, "go")), "Image", common.TypeRelationshipContains)
	for _, module := range modules {
		add(goModule(module.Path, module.Version), "Image", common.TypeRelationshipContains)
	}
	data, err := json.MarshalIndent(doc, "", "  ")
	return append(data, '\n'), err
}

func spdxPackage(id, name, version, purl string) *v2_3.Package {
	p := &v2_3.Package{
		PackageName:               name,
		PackageVersion:            version,
		PackageSPDXIdentifier:     common.ElementID(id),
		PackageDownloadLocation:   unknown,
		PackageLicenseConcluded:   unknown,
		PackageLicenseDeclared:    unknown,
		PackageCopyrightText:      unknown,
		IsFilesAnalyzedTagPresent: true,
	}
	if purl != "" {
		p.PackageExternalReferences = []*v2_3.PackageExternalReference{
			{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl},
		}
	}
	return p
}

func debianPackage(p debian.Package, architecture string) *v2_3.Package {
	qualifiers := map[string]string{"arch": architecture, "distro": "debian-12"}
	if strings.HasSuffix(p.Path, "_all.deb") {
		qualifiers["arch"] = "all"
	}
	if p.Source != p.Name {
		qualifiers["upstream"] = p.Source
	}
	purl := packageurl.NewPackageURL("deb", "debian", p.Name, p.Version, packageurl.QualifiersFromMap(qualifiers), "")
	out := spdxPackage("Debian-"+identifier(p.Name), p.Name, p.Version, purl.ToString())
	out.PackageSupplier = &common.Supplier{SupplierType: "Organization", Supplier: "Debian"}
	out.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: p.SHA256}}
	out.PackageComment = "The licence is in /usr/share/doc/" + p.Name + "/copyright of the image."
	return out
}

func goModule(path, version string) *v2_3.Package {
	namespace, name := "", path
	if i := strings.LastIndex(path, "/"); i >= 0 {
		namespace, name = path[:i], path[i+1:]
	}
	purl := packageurl.NewPackageURL("golang", namespace, name, version, nil, "")
	return spdxPackage("Go-"+identifier(path), path, version, purl.ToString())
}

// identifier replaces what an SPDX identifier must not have. Different names of packages stay
// different: a character that is replaced becomes its number.
func identifier(name string) string {
	var id strings.Builder
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.':
			id.WriteRune(r)
		case r == '-':
			id.WriteString("--")
		default:
			fmt.Fprintf(&id, "-%x-", r)
		}
	}
	return id.String()
}
